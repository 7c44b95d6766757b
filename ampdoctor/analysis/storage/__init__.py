"""What is kept in half precision: weights, optimizer state, running totals."""
