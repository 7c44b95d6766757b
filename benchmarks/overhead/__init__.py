"""What recording costs beside what other tools cost: `python -m benchmarks.overhead`."""

from benchmarks.overhead.twin_models import MODELS

__all__ = ["MODELS"]
