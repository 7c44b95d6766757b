"""What `make docs` and `make bless` run; not installed."""
