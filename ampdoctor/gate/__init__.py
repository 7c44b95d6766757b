"""The CI gate: what a run comes to in numbers, what of that is let pass, and what has got worse. Nothing prints here."""
