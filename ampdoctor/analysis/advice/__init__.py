"""Cures: which to choose, what they would do, and the code to write for the run at hand."""
