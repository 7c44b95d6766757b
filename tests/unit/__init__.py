"""Tests of one module at a time, in the package's own layout."""
