"""The order of AMP calls, what autocast covered, how the loss was scaled, and what raised."""
