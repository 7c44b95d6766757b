"""The numbers in the first row of the page Memory and speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.memory.ledgers import PEAK
from ampdoctor.analysis.wording import bytes_text, number, percent
from ampdoctor.finding import Grade
from ampdoctor_dashboard.figures.memory import component_title
from ampdoctor_dashboard.widgets.costs import Figure

if TYPE_CHECKING:
    from ampdoctor.analysis.speed import Speed
    from ampdoctor_dashboard.data.memory import Chosen
    from ampdoctor_dashboard.words import Words


def memory_numbers(found: Chosen, words: Words) -> list[Figure]:
    """Return what the page says of the memory at the chosen moment."""
    ledger = found.ledger
    whole = ledger.total(found.phase)
    name, largest = next(iter(ledger.components(found.phase).items()), ("", 0))
    shown = [
        Figure(words("at the peak"), bytes_text(ledger.total(PEAK)), Grade.OBSERVED,
               words("Bytes of all tensors that lived at the moment of the step at which most did.")),
        Figure(words("largest component"), f"{component_title(name, words)}, {percent(largest / max(whole, 1))}",
               Grade.OBSERVED, words("At the chosen moment, with its share of all that lived.")),
    ]  # fmt: skip
    allocated = ledger.allocated(found.phase)
    if allocated is not None:
        unattributed, overhead = ledger.unattributed(found.phase) or 0, ledger.overhead(found.phase)
        shown += [
            Figure(words("allocated"), bytes_text(allocated), Grade.OBSERVED,
                   words("What torch's CUDA allocator had given out at the chosen moment.")),
            Figure(words("unattributed"), f"{'-' if unattributed < 0 else ''}{bytes_text(abs(unattributed))}",
                   Grade.OBSERVED, words("Given out beyond all components; below 0 where blocks had been given back.")),
            Figure(words("reserved, not in use"), "?" if overhead is None else bytes_text(overhead), Grade.OBSERVED,
                   words("What the allocator held beyond that: its cache, and what is fragmented.")),
        ]  # fmt: skip
    return shown


def speed_numbers(speed: Speed | None, words: Words) -> list[Figure]:
    """Return what the page says of the time of a step's operations; nothing where none was timed."""
    if speed is None:
        return []
    where = words("time on the device") if speed.on_device else words("time on the host")
    shares = (
        (words("computing in half"), speed.in_half, words("Operations whose result is FP16 or BF16, casts left out.")),
        (words("casts"), speed.casts, words("Operations that only change the dtype of floating-point numbers.")),
        (words("FP32 under autocast"), speed.kept_fp32,
         words("Operations that autocast leaves in FP32 or takes there: softmax, norms, losses.")),
    )  # fmt: skip
    return [
        Figure(where, f"{number(speed.total_ms)} ms", Grade.OBSERVED,
               words("All operations of the timed step together, without what the host does between them.")),
        *(Figure(name, percent(min(speed.share(rows), 1.0)), Grade.OBSERVED, why) for name, rows, why in shares),
    ]  # fmt: skip
