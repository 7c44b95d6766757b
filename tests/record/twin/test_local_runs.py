"""Local twins beside whole steps: the run is what it would be without."""

from __future__ import annotations

import pytest
import torch

from ampdoctor.record.twin.local import measures
from ampdoctor.record.twin.local.local_twins import LocalTwins
from tests.record.twin.cases import CASES, ONEDNN_LSTM
from tests.record.twin.local_rows import Locally
from tests.record.twin.setting import Setting
from tests.record.twin.training import Case, Observer

RUNS = [pytest.param(case, half, id=f"{case}-{half}") for case in CASES for half in case.halves]

_OWN_LAYOUT = {"aten.mkldnn_rnn_layer_backward"}


class Watching(Locally, Observer):
    """Local twins as the observer of a step."""


def same_gradient(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one.to_dense(), other.to_dense())


@pytest.mark.parametrize(("case", "half"), RUNS)
def test_the_run_is_the_same_to_the_bit(case: Case, half: torch.dtype) -> None:
    setting = Setting(half, 2.0**-4)
    alone, watched = case.start(3), case.start(3)
    after = torch.get_rng_state()
    losses = alone.run_step(setting)
    expected = torch.get_rng_state()

    torch.set_rng_state(after)
    watching = Watching()
    again = watched.run_step(setting, watching)

    assert all(torch.equal(a, b) for a, b in zip(losses, again, strict=True))
    assert torch.equal(torch.get_rng_state(), expected)
    for name, parameter in alone.parameters.items():
        other = watched.parameters[name]
        assert torch.equal(parameter, other)
        assert same_gradient(parameter.grad, other.grad)
    rows = watching.rows()
    named = {name.partition(":")[0] for name in watching.twins.not_twinned}
    assert named <= _OWN_LAYOUT
    assert {r.direction for r in rows} == {"forward", "backward"}
    assert all(0 <= r.flushed <= r.nonzero <= r.numel for r in rows)
    assert any(r.flushed for r in rows) == any(r.first_lost is not None for r in rows if r.flushed)


@pytest.mark.skipif(bool(ONEDNN_LSTM), reason="every case runs here")
def test_what_this_cpu_cannot_run_is_said() -> None:
    pytest.skip("oneDNN has no LSTM in BF16 for this CPU: no test of lstm-onednn has run")


def test_too_many_calls_on_a_device_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # The numbers of calls stay on the device: here they are tensors though the device is the CPU.
    monkeypatch.setattr("ampdoctor.record.twin.local.rows.MOST_CALLS", 2)
    monkeypatch.setattr("ampdoctor.record.twin.local.local_twins.MOST_CALLS", 2)
    monkeypatch.setattr(measures, "_on_cpu", measures._on_device)
    locally = Locally()
    x = torch.full((3,), 2.0**-13, dtype=torch.float16)

    with locally.mode:
        for _ in range(5):
            x * x

    (row,) = locally.rows()
    assert (row.calls, row.flushed, row.first_lost) == (2, 6, row.seq)
    assert dict(locally.twins.not_twinned) == {"aten.mul: over 2 calls": 3}


def test_no_memory_for_copies_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ampdoctor.record.twin.local.execution._SURE_TO_FIT", 0)
    monkeypatch.setattr("ampdoctor.record.twin.local.execution.fits", lambda _: False)
    locally = Locally()
    x = torch.ones(3, dtype=torch.float16)

    with locally.mode:
        x * x

    assert locally.rows() == []
    assert dict(locally.twins.not_twinned) == {"aten.mul: no memory for FP32 copies": 1}


def test_local_twins_follow() -> None:
    assert LocalTwins(Locally().log, source="replay").not_twinned == {}
