"""How fast the dashboard is on a long run: `python -m benchmarks.dashboard`."""
