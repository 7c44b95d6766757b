"""Which steps and how many modules are hurt, and whether it lasts."""

from __future__ import annotations

from ampdoctor.analysis.backward.limits import Limits
from ampdoctor.analysis.backward.vanishing import Vanishing, vanishing
from ampdoctor.trace.builder import RunBuilder

LIMITS = Limits()
FAR = {-12: 5000, -11: 5000}
EDGE = {-24: 300, -23: 20}


def _run(hurt: list[list[bool]], losses: list[float] | None = None, **info: object) -> Vanishing | None:
    """One row a step, one entry a module: whether its gradient is at the edge."""
    run = RunBuilder(**info)
    for index, modules in enumerate(hurt):
        run.step(loss=losses[index] if losses else 2.0)
        for module, bad in enumerate(modules):
            kept = EDGE if bad else FAR
            zeros = 10000 - sum(kept.values())
            run.tensor(f"m{module}", "grad_output", dtype="float16", exponents=kept, zeros=zeros)
    return vanishing(run.build(), LIMITS)


def test_without_fp16_gradients_there_is_nothing_to_judge() -> None:
    assert vanishing(RunBuilder().step(loss=1.0).build(), LIMITS) is None


def test_lasting_harm() -> None:
    found = _run([[True, False]] * 6)
    assert found is not None
    assert found.lasting
    assert found.share == 0.5
    assert [s.name for s in found.worst] == ["m0"]
    assert found.key.name == "m0"


def test_a_special_first_step_does_not_last() -> None:
    found = _run([[True, True]] + [[False, False]] * 7)
    assert found is not None
    assert len(found.hurt) == 1
    assert not found.lasting


def test_harm_that_begins_late_lasts() -> None:
    found = _run([[False]] * 5 + [[True]] * 5)
    assert found is not None
    assert found.lasting
    assert found.hurt[0].row.step == 5


def test_one_odd_module_in_a_deep_model_is_no_fault() -> None:
    found = _run([[True] + [False] * 19] * 6)
    assert found is not None
    assert found.hurt == ()


def test_a_converged_run_is_not_judged_by_its_end() -> None:
    losses = [2.0] * 5 + [1e-3] * 20
    found = _run([[False]] * 5 + [[True]] * 20, losses)
    assert found is not None
    assert len(found.judged) == 5
    assert not found.lasting


def test_a_single_examined_step_counts_once_the_run_is_over() -> None:
    over, going_on = _run([[True]]), _run([[True]], status="running")
    assert over is not None
    assert going_on is not None
    assert over.lasting
    assert not going_on.lasting


def test_only_weight_gradients_without_a_nonzero_element_are_counted() -> None:
    run = RunBuilder()
    for _ in range(3):
        run.step(loss=2.0).tensor("a", "grad_output", dtype="float16", exponents=EDGE, zeros=9680)
        run.tensor("a", "weight_grad", slot="weight", zeros=100, shape=[10, 10])
        one = {-24: 1}
        run.tensor("a", "weight_grad", slot="v", zeros=99, exponents=one, shape=[10, 10])
    found = vanishing(run.build(), LIMITS)
    assert found is not None
    assert found.zero_weight_gradients == (1, 2)
