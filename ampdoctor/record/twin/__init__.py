"""The second opinion: the live step executed in other formats and loss scales as well, and each operation by itself."""
