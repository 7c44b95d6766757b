"""Where the first nonfinite value of a forward pass was born."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ampdoctor.analysis.forward.forward_reach import harmed_steps, peak_before, weight_reach
from ampdoctor.analysis.forward.passes import ForwardStep, forward_steps, is_mask
from ampdoctor.trace.builder import RunBuilder


def _activation(run: RunBuilder, module: str, dtype: str = "float16", **columns: Any) -> RunBuilder:
    return run.tensor(module, "activation", dtype=dtype, **({"exponents": {3: 9}} | columns))


def _only(run: RunBuilder) -> ForwardStep:
    (step,) = forward_steps(run.build())
    return step


def test_a_finite_pass_has_no_birth() -> None:
    step = _only(_activation(RunBuilder().step(), "a"))
    assert step.birth is None
    assert step.weights_finite


def test_the_first_in_order_is_the_birth() -> None:
    run = RunBuilder().step()
    _activation(run, "a", exponents={5: 9})
    _activation(run, "b", posinf=3)
    _activation(run, "c", nan=9)
    step = _only(run)
    assert step.birth is not None
    assert step.birth.module == "b"
    assert [r.module for r in step.activations] == ["a"]
    assert step.largest_half is not None
    assert step.largest_half.absmax == 32.0


@pytest.mark.parametrize(
    ("columns", "mask"),
    [
        ({"neginf": 40}, True),
        ({"neginf": 40, "exponents": {}}, True),
        ({"neginf": 40, "nan": 1}, False),
        ({"neginf": 40, "posinf": 1}, False),
        ({"neginf": 40, "exponents": {15: 9}}, False),
        ({}, False),
    ],
)
def test_minus_infinity_among_ordinary_values_is_a_mask(columns: dict[str, Any], mask: bool) -> None:
    run = _activation(RunBuilder().step(), "scores", **columns).build()
    assert is_mask(run.tensors("activation")[0]) is mask


def test_broken_weights_are_remembered() -> None:
    run = RunBuilder()
    for nan in (0, 5, 0):
        _activation(run.step().tensor("a", "weight", slot="weight", nan=nan), "a")
    assert [s.weights_finite for s in forward_steps(run.build())] == [True, False, False]


def test_harm_is_a_broken_loss_or_gradient_or_a_skip() -> None:
    run = RunBuilder().step(loss=1.0).step(loss=math.nan).step(loss=1.0, found_inf=True)
    run.step(loss=1.0).tensor("a", "grad_output", nan=1)
    assert harmed_steps(run.build()) == {
        1: "the loss is nan",
        2: "the scaler skipped the step",
        3: "gradients are not finite",
    }


def test_the_peak_of_a_site_is_over_all_steps_up_to_its_own() -> None:
    run = RunBuilder()
    for top in (5, 9, 14):
        _activation(run.step(), "a", exponents={top: 9})
        _activation(run, "b", exponents={15: 9})
    rows = [r for r in run.build().tensors("activation") if r.module == "a"]
    assert peak_before(run.build(), rows[1]) == 2.0**9


def test_the_reach_of_a_module_is_that_of_its_largest_weight_over_all_its_inputs() -> None:
    run = RunBuilder().step()
    run.tensor("a", "weight", slot="weight", exponents={3: 8}, shape=[2, 4])
    run.tensor("a", "weight", slot="bias", exponents={9: 2})
    _activation(run, "a", posinf=1)
    _activation(run, "b", posinf=1)
    rows = list(run.build().tensors("activation"))
    assert weight_reach(run.build(), rows[0]) == 8.0 * 4
    assert weight_reach(run.build(), rows[1]) == 0.0
