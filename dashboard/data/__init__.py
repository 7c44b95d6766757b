"""What the dashboard knows of runs: plain numbers, of whole recordings and while they grow."""
