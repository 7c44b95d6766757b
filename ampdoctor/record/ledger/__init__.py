"""The ledger of one step: which storages lived when and what they were for, and how long each operation took.

The same ledger is kept of a live step and of one that is only planned, on fake tensors.
"""
