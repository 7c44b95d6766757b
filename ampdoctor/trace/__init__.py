"""The trace: its schema (the contract), the writer and `Run`, the read-only view that everything above it sees."""
