"""What findings say alike, in words."""
