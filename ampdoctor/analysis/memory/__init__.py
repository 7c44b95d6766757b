"""Where a step's memory went: what was recorded of it, what it would be in other layouts, what would make it less."""
