"""lost-updates beyond its examples: what it says of several tensors."""

from __future__ import annotations

from ampdoctor.finding import Finding, Severity
from ampdoctor.rules.lost_updates import LostUpdates
from ampdoctor.trace.builder import RunBuilder


def _check(*tensors: tuple[int, float]) -> list[Finding]:
    """Four steps with one tensor for each (elements, share of its update's energy that is lost)."""
    run = RunBuilder(device="cuda: NVIDIA A100")
    for step in range(4):
        run.step(loss=0.3)
        for index, (numel, lost) in enumerate(tensors):
            if step == 0:
                run.module(f"m{index}", dtypes=["bfloat16"])
            run.tensor(
                f"m{index}", "update", slot="weight", dtype="bfloat16", exponents={-13: numel},
                expected_to_move=numel, unchanged=round(numel * lost), energy_unchanged=lost,
                small_updates=1, small_updates_moved=0,
            )  # fmt: skip
    return list(LostUpdates().check(run.build()))


def _energy(finding: Finding) -> tuple[object, str]:
    return next((e.value, e.text) for e in finding.evidence if e.name == "lost_update_energy")


def test_shares_of_different_tensors_are_not_added_up() -> None:
    (finding,) = _check((1000, 0.9), (600, 0.3), (500, 0.1))
    value, text = _energy(finding)
    # A sum would need the size of each update, which is not recorded.
    assert value == 0.3
    assert "lost 30.0 % or more of their own update" in text
    assert "the worst of 3 is `m0.weight` with 90.0 %" in text
    assert finding.severity is Severity.WARNING


def test_one_small_tensor_is_no_fault_of_the_run() -> None:
    assert _check((10, 0.9), (1000, 0.01)) == []


def test_a_single_tensor_is_told_by_itself() -> None:
    (finding,) = _check((1000, 0.9))
    assert _energy(finding) == (0.9, "They held 90.0 % of the update of `m0.weight` (sum of squares).")
    assert finding.severity is Severity.ERROR
