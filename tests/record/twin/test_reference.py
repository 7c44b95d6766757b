"""The test bed itself: real runs repeat to the bit, differ where settings do, and flush what they should."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
import torch

from tests.record.training import Outcome
from tests.record.twin.cases import CASES
from tests.record.twin.odd_tensors import ODD
from tests.record.twin.op_sequence import OpSequence, differing_ops, op_sequence
from tests.record.twin.reference import RealStep, flushed_truth, real_gradients, real_step
from tests.record.twin.setting import Setting
from tests.record.twin.structural import HEALTHY, STRUCTURAL
from tests.record.twin.training import Observer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.record.twin.training import Case, Parameters

SMALL = 2.0**-8
IN_FP16 = tuple(case for case in CASES if torch.float16 in case.halves)

every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_fp16_case = pytest.mark.parametrize("case", IN_FP16, ids=str)
structural_cases = pytest.mark.parametrize("case", STRUCTURAL, ids=str)
all_of_them = pytest.mark.parametrize("case", [*CASES, *STRUCTURAL, *ODD], ids=str)


def settings(case: Case, scale: float = SMALL) -> list[Setting]:
    """Return the case's settings: its half formats, and FP32."""
    return [Setting(half, scale) for half in (*case.halves, None)]


def bits(step: RealStep) -> Outcome:
    """Return the step to the bit, the generators' states with it."""
    return Outcome.of(losses=step.losses, gradients=step.gradients, updated=step.updated)


@all_of_them
def test_a_real_run_repeats_to_the_bit(case: Case) -> None:
    for setting in settings(case):
        once, again = (bits(real_step(case, setting, steps_before=2)) for _ in range(2))
        assert once.differences(again) == []


@all_of_them
def test_no_setting_is_blown_up_or_empty(case: Case) -> None:
    for setting in settings(case, scale=2.0**8):
        step = real_step(case, setting)
        assert all(bool(loss.isfinite()) for loss in step.losses)
        assert all(bool(g.isfinite().all()) for g in step.gradients.values())
        assert any(bool(g.any()) for g in step.gradients.values())


@all_of_them
def test_formats_differ(case: Case) -> None:
    steps = [bits(real_step(case, setting)) for setting in settings(case)]
    for one, other in zip(steps, steps[1:] + steps[:1], strict=True):
        assert [path for path in one.differences(other) if path.startswith(".gradients")]


@all_of_them
def test_every_format_draws_the_same_random_numbers(case: Case) -> None:
    states = []
    for setting in settings(case):
        real_step(case, setting)
        states.append(torch.get_rng_state())
    assert all(torch.equal(state, states[0]) for state in states)


@pytest.mark.parametrize("case", [*CASES, *STRUCTURAL], ids=str)
def test_fp32_gradients_are_the_scale_times_the_unscaled_ones(case: Case) -> None:
    plain = real_step(case, Setting(None, scaled_by="none"))
    for setting in (Setting(None, 2.0**9), Setting(None, 2.0**9, "hand"), Setting(None, SMALL)):
        scaled = real_step(case, setting)
        expected = {name: g * setting.scale for name, g in plain.gradients.items()}
        assert Outcome.of(g=scaled.gradients).differences(Outcome.of(g=expected)) == []
        assert Outcome.of(x=scaled.losses).differences(Outcome.of(x=plain.losses)) == []
        assert Outcome.of(w=scaled.updated).differences(Outcome.of(w=plain.updated)) == []


@every_fp16_case
def test_who_scales_makes_no_difference(case: Case) -> None:
    by_scaler, by_hand = (real_step(case, Setting(scale=64.0, scaled_by=by)) for by in ("scaler", "hand"))  # fmt: skip
    assert bits(by_scaler).differences(bits(by_hand)) == []


@every_fp16_case
def test_a_scale_too_small_flushes_and_a_larger_one_flushes_less(case: Case) -> None:
    totals = []
    for scale in (2.0**-12, SMALL, 2.0**12):
        truth = flushed_truth(case, Setting(scale=scale))
        assert all(0 <= flushed <= nonzero for flushed, nonzero in truth.values())
        totals.append(sum(flushed for flushed, _ in truth.values()))
    assert totals[0] > totals[1] > 0
    assert totals[2] <= totals[1] / 20


@every_fp16_case
def test_the_truth_of_a_later_step_starts_from_the_run_s_own_weights(case: Case) -> None:
    setting = Setting(scale=2.0**-12)
    truth = flushed_truth(case, setting, steps_before=2)
    assert truth != flushed_truth(case, setting)
    assert sum(flushed for flushed, _ in truth.values()) > 0


@structural_cases
def test_structural_zeros_are_not_flushed(case: Case) -> None:
    for scale in (2.0**8, HEALTHY.scale):
        truth = flushed_truth(case, HEALTHY.at(scale))
        assert {name: flushed for name, (flushed, _) in truth.items() if flushed} == {}


@structural_cases
def test_there_are_structural_zeros(case: Case) -> None:
    gradients = real_gradients(case, HEALTHY.to(None))
    assert any(bool((g == 0).any()) for g in gradients.values())


@pytest.mark.parametrize("case", [case for case in CASES if "gan" in case.name], ids=str)
def test_the_second_half_of_a_gan_can_follow_the_run_s_discriminator(case: Case) -> None:
    run = real_step(case, Setting(scale=SMALL))
    alone = real_gradients(case, Setting(None, SMALL))
    following = real_gradients(case, Setting(None, SMALL), follow=run.updated)
    parted = Outcome.of(g=alone).differences(Outcome.of(g=following))
    assert parted
    assert all(".generator." in path for path in parted)


class Looking(Observer):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.seen: set[str] = set()

    @contextlib.contextmanager
    def during(self) -> Iterator[None]:
        self.told.append("enter")
        yield
        self.told.append("leave")

    def before_optimizer(self, optimizer: torch.optim.Optimizer, parameters: Parameters) -> None:
        self.told.append("before")
        self.seen |= {name for name, p in parameters.items() if p.grad is not None}

    def after_optimizer(self, optimizer: torch.optim.Optimizer, parameters: Parameters) -> None:
        self.told.append("after")


@every_case
def test_an_observer_is_told_of_each_optimizer_and_sees_every_parameter(case: Case) -> None:
    training, observer = case.start(0), Looking()
    training.run_step(Setting(case.halves[0]), observer)
    times = 2 if "gan" in case.name else 1
    assert observer.told == ["enter", "before", "leave", "after"] * times
    assert observer.seen == set(training.parameters)


@all_of_them
def test_a_mode_that_only_looks_changes_nothing(case: Case) -> None:
    class Both(RealStep):
        def during(self) -> contextlib.AbstractContextManager[object]:
            return OpSequence().during()

    step, training = Both(), case.start(0)
    step.losses = training.run_step(Setting(case.halves[0]), step)
    assert bits(step).differences(bits(real_step(case, Setting(case.halves[0])))) == []


@every_case
def test_every_format_runs_the_same_ops(case: Case) -> None:
    sequences = [op_sequence(case, setting) for setting in settings(case)]
    assert [sorted(ops) for ops in sequences] == [sorted(sequences[0])] * len(sequences)
    assert sequences[0] == op_sequence(case, Setting(case.halves[-1]))


def test_only_where_gradients_add_up_does_fp32_run_the_ops_in_another_order() -> None:
    # A cast is a node of its own in the graph, so that additions to one gradient move among other ops.
    moved = {case.name: differing_ops(case, *settings(case)[-2:]) for case in CASES}
    assert {name for name, ops in moved.items() if ops} == {
        "lstm", "gru", "accumulated", "two-losses", "gan", "gan-shared-fake",
    }  # fmt: skip
    for name in ("accumulated", "two-losses", "gan", "gan-shared-fake"):
        assert set(moved[name]) <= {("add_.Tensor", ""), ("", "add_.Tensor")}
