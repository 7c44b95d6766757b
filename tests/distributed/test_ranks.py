"""Two ranks: what each records, what is put together of it, and which rank a diagnosis names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ampdoctor.engine import diagnose
from ampdoctor.finding import Severity
from tests.record.launched import Launched

if TYPE_CHECKING:
    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.trace.run import Run

SCRIPT = Path(__file__).parent / "scripts" / "ranks.py"
BREAKS_AT = 2

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="gloo over the loopback interface needs Linux or macOS"),
]


@pytest.fixture
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launched:
    """Starts trainings of two ranks."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo" if Path("/sys/class/net/lo").exists() else "lo0")
    return Launched(tmp_path / "run", monkeypatch)


def _train(launched: Launched, kind: str) -> list[str]:
    """Train under the recorder; return the lines that the ranks printed."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = launched.ended(launched.record(*torchrun, str(SCRIPT), kind))
    assert ended.code == 0, ended.err
    assert launched.run.ranks == (0, 1)
    return sorted(ended.out.splitlines())


def _faults(run: Run) -> Diagnosis:
    diagnosis = diagnose(run)
    assert diagnosis.crashed == ()
    return diagnosis


@pytest.mark.parametrize("kind", ["fsdp", "fsdp-half"])
def test_spread_gradients_are_put_together(launched: Launched, kind: str) -> None:
    lines = _train(launched, kind)
    run = launched.run
    rows = {r.site: r for r in run.tensors("weight_grad") if r.step == 3}
    printed = {n: v for word, n, *v in map(str.split, lines) if word == "gradient"}
    assert rows.keys() == printed.keys()
    for name, (numel, largest, rms) in printed.items():
        row = rows[name]
        assert (row.numel, row.part, row.absmax) == (int(numel), None, float(largest))
        assert row.rms == pytest.approx(float(rms), rel=1e-12)
        assert sum(row.exp_counts) + row.zeros == row.numel
    for role in ("weight", "update", "optimizer_state"):
        found = [r for r in run.tensors(role) if r.step == 3]
        assert {r.numel for r in found} == {63, 9, 45, 5}
        assert all(r.part is None and r.module in {"0", "2"} for r in found)
    assert sum(r.shape == [9, 7] for r in run.tensors("update")) == 4
    assert run.notices == ()


def test_a_part_that_nobody_recorded_is_told(launched: Launched) -> None:
    _train(launched, "fsdp")
    (launched.folder / "tensors-1.arrows").unlink()
    (notice,) = launched.run.notices
    assert notice.endswith("tensors that are spread over ranks some parts were not recorded")
    assert {r.parts for r in launched.run.tensors("weight_grad")} == {2}


def test_a_loss_that_is_nan_on_one_rank(launched: Launched) -> None:
    _train(launched, "nan")
    diagnosis = _faults(launched.run)
    found = {f.name: f for root in diagnosis.findings for f in (root, *root.consequences)}
    assert found["ranks-differ"].location.ranks == (1,)
    assert found["ranks-differ"].location.first_step == BREAKS_AT
    assert found["ranks-differ"].severity is Severity.ERROR
    # The rules have looked at the rank that it came from, where it can be seen.
    assert any(1 in f.location.ranks for name, f in found.items() if name != "ranks-differ")


def test_a_step_that_one_rank_skips(launched: Launched) -> None:
    _train(launched, "skips")
    (fault,) = _faults(launched.run).faults
    assert (fault.name, fault.location.ranks, fault.location.first_step) == ("ranks-differ", (1,), BREAKS_AT)
    assert {e.name for e in fault.evidence} == {"skipped_steps", "scale_steps"}


@pytest.mark.parametrize("kind", ["ddp", "hook", "reentrant", "checkpointed"])
def test_ranks_that_agree(launched: Launched, kind: str) -> None:
    _train(launched, kind)
    run = launched.run
    assert [f.name for f in _faults(run).faults] == []
    for rank in run.ranks:
        own = run.of_rank(rank)
        assert [s.micro_batches for s in own.steps] == [2] * 4
        # The first pass of reentrant checkpointing is recorded too, as one without gradients.
        last = [r for r in own.tensors("activation") if r.step == 3 and r.slot == "out" and r.module and r.grad_enabled]
        assert len({(r.module, r.micro_batch) for r in last}) == len(last)
        gradients = [r for r in own.tensors("weight_grad") if r.step == 3]
        assert len({r.site for r in gradients}) == len(gradients)
    # What was shared is the same everywhere.
    shared = [[(r.site, r.absmax, r.rms) for r in run.of_rank(k).tensors("weight_grad")] for k in run.ranks]
    assert shared[0] == shared[1]
