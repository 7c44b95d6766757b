"""A step that has failed, executed once more under twins and with nothing changed by it."""
