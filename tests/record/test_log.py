"""What a step queues, and until when."""

from __future__ import annotations

import torch

from ampdoctor.record.log import StepLog


def test_rows_of_a_departed_step_are_dropped() -> None:
    log = StepLog(0, "first")
    log.row("steps", lambda _: 1)
    transfer = log.depart()
    key = log.keep(torch.ones(3, dtype=torch.float64))
    log.row("steps", lambda values: values.number(key))
    assert log.finish(transfer).rows == [("steps", 1)]
