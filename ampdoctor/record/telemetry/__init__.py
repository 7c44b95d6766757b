"""What NVML says of the GPUs that train: asked once a second, on a thread of its own."""
