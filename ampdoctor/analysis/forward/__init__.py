"""The forward pass of a run: where values are lost, and where the first NaN or infinity is born."""
