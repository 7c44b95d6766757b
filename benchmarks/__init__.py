"""What `make bench` runs; not installed."""
