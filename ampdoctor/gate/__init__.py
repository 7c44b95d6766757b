"""The CI gate: what a run comes to in numbers, what of that is let pass, and what got worse. Nothing prints here."""

from ampdoctor.gate.checks import check

__all__ = ["check"]
