"""The recorder: the only package that imports torch, and it does so only in the training process."""
