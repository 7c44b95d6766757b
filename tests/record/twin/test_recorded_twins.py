"""Second opinions in whole recordings: the truth in the trace, and a training that has not noticed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from ampdoctor.engine import diagnose
from ampdoctor.finding import Severity
from tests.record.twin.cases import CASES
from tests.record.twin.recorded import EARLY, opinion, recorded, trained, twin_rows
from tests.record.twin.reference import flushed_truth
from tests.record.twin.setting import Setting
from tests.record.twin.structural import HEALTHY, STRUCTURAL

if TYPE_CHECKING:
    from pathlib import Path

    from tests.record.twin.training import Case

IN_FP16 = tuple(case for case in CASES if torch.float16 in case.halves)
SMALL = Setting(scale=2.0**-10)


@pytest.mark.parametrize("case", IN_FP16, ids=str)
def test_measured_flushed_is_the_truth_and_the_training_is_itself(tmp_path: Path, case: Case) -> None:
    plain, _ = trained(case, SMALL, EARLY + 2)
    (found, _), run = recorded(tmp_path / "run", lambda: trained(case, SMALL, EARLY + 2))
    assert found.differences(plain) == []
    row = opinion(run)
    assert (row.declined, row.reason, row.kind) == (None, "first", "carried")
    assert row.counterfactuals[0] == "fp32"
    truth = flushed_truth(case, SMALL, steps_before=EARLY)
    rows = twin_rows(run, "weight_grad", "run")
    # A parameter's name depends on what holds it; shapes and numbers must agree all the same.
    assert sorted((r.flushed, r.nonzero) for r in rows) == sorted(truth.values())
    (total,) = twin_rows(run, "gradient", "run")
    assert (total.flushed, total.nonzero) == tuple(map(sum, zip(*truth.values(), strict=True)))
    assert total.flushed > 0
    (full,) = twin_rows(run, "gradient", "fp32")
    assert (full.flushed, full.overflowed) == (0, 0)
    assert full.cosine == pytest.approx(1.0, abs=1e-7)
    assert full.norm_ratio == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize("case", STRUCTURAL, ids=str)
def test_structural_zeros_are_no_fault(tmp_path: Path, case: Case) -> None:
    _, run = recorded(tmp_path / "run", lambda: trained(case, HEALTHY, EARLY + 4))
    assert opinion(run).declined is None
    rows = [r for r in run.twins if r.counterfactual == "run" and r.role in {"weight_grad", "gradient"}]  # fmt: skip
    assert rows
    truth = flushed_truth(case, HEALTHY, steps_before=EARLY)
    of_parameters = [r for r in rows if r.role == "weight_grad" and r.step == EARLY]
    assert sorted((r.flushed, r.nonzero) for r in of_parameters) == sorted(truth.values())
    # In real runs, too, one element of masked attention's 768 is flushed by this step.
    assert sum(r.flushed for r in of_parameters) <= (case.name == "masked-attention")
    wrong = [f for f in diagnose(run).findings if f.severity in {Severity.WARNING, Severity.ERROR}]
    assert wrong == []


@pytest.mark.parametrize("prove", [False, None, True])
def test_who_wants_none_gets_none_and_who_wants_more_gets_more(tmp_path: Path, prove: bool | None) -> None:
    case = CASES[0]
    _, run = recorded(tmp_path / "run", lambda: trained(case, SMALL, 8), prove=prove, every=2)
    steps = {r.step for r in run.twin_steps if r.kind != "replay"}
    if prove is False:
        assert steps == set()
    elif prove is None:
        assert EARLY in steps
    else:
        assert steps >= {0, 2, 4, 6}


def test_a_hand_made_gradient_has_no_other_loss_scale(tmp_path: Path) -> None:
    """What `autograd.grad` returns was not seeded anew: it is not told as one at another loss scale."""

    def train() -> None:
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(8, 8))
        optimizer = torch.optim.SGD([weight], lr=0.01)
        for _ in range(EARLY + 2):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = torch.nn.functional.linear(torch.randn(4, 8), weight).square().mean()
            (weight.grad,) = torch.autograd.grad(loss, weight)
            optimizer.step()

    _, run = recorded(tmp_path / "run", train, every=1)
    names = {r.counterfactual for r in run.twins if r.role == "weight_grad"}
    assert not any("@" in name for name in names)


def test_products_are_differentiated_as_without_us(tmp_path: Path) -> None:
    """Torch takes another formula for the derivative of `prod` while a mode is on."""

    def train() -> list[torch.Tensor]:
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(8, 8))
        optimizer = torch.optim.SGD([weight], lr=0.01)
        kept = []
        for _ in range(EARLY + 2):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                y = torch.nn.functional.linear(torch.randn(4, 8), weight)
                full = y.float()
                loss = full.tanh().prod(1).mean() + full.cumprod(0).mean()
                loss = loss + full.cos().prod()
            loss.backward()
            kept.append(weight.grad.clone())  # type: ignore[union-attr]
            optimizer.step()
        return kept

    plain = train()
    found, run = recorded(tmp_path / "run", train)
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
    assert opinion(run).not_twinned == []
    assert opinion(run).declined is None
