"""The test suite; `unit` mirrors the package, the other folders go by purpose."""
