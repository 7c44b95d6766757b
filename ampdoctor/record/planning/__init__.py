"""Memory that a training would take, found out without a GPU and without allocating: one step on fake tensors."""
