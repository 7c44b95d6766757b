"""What half precision and FP8 may not hold, watched where it is rounded: whole numbers, phases, scaled tensors."""
