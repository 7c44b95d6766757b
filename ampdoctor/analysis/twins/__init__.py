"""What second opinions measured: the same step in FP32 and in other settings."""
