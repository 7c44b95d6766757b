"""Local twins: each operation by itself beside its result in FP32."""
