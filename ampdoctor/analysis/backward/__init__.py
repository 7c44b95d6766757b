"""The gradients of a run: what half precision took of them, and what would hold them."""
