"""The rules about whole numbers, phases, FP8 scales, communication hooks and losses in half: numbers and edges."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from ampdoctor.analysis.forward.loss_in_fp32 import LOSS_ALONE
from ampdoctor.engine import diagnose
from ampdoctor.finding import Severity
from ampdoctor.rules.bf16_integer_precision import Bf16IntegerPrecision
from ampdoctor.rules.comm_hook_underflow import CommHookUnderflow
from ampdoctor.rules.fp8_scale_stale import Fp8ScaleStale
from ampdoctor.rules.loss_in_half import LossInHalf
from ampdoctor.rules.rope_half_precision import RopeHalfPrecision
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from ampdoctor.finding import Finding
    from ampdoctor.rules.base import Rule


def said(rule: Rule, run: RunBuilder) -> list[Finding]:
    """Return what `rule` says of a run."""
    return list(rule.check(run.build()))


def watched() -> RunBuilder:
    """Return a run of one step that was watched."""
    return RunBuilder().step(loss=1.0).rounding("watched")


def integers(after: int, **columns: Any) -> RunBuilder:
    """Return a run that casts 1000 whole numbers, of which `after` different ones are left."""
    numbers: dict[str, Any] = {
        "changed": 1000 - after, "distinct": 1000, "distinct_after": after, "numel": 1000, "largest": 999.0,
        "even_steps": True, "led_to": [],
    }  # fmt: skip
    return watched().rounding("integers", **(numbers | columns))


@pytest.mark.parametrize(
    ("after", "severity"),
    [(950, None), (900, Severity.WARNING), (760, Severity.WARNING), (750, Severity.ERROR), (500, Severity.ERROR)],
)  # fmt: skip
def test_how_many_positions_must_collide(after: int, severity: Severity | None) -> None:
    found = said(Bf16IntegerPrecision(), integers(after))
    assert [f.severity for f in found] == ([] if severity is None else [severity])


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"even_steps": False}, False),
        ({"even_steps": False, "led_to": ["integer"]}, True),
        ({"even_steps": False, "led_to": ["weight"]}, False),
        ({"led_to": ["weight"]}, False),
        ({"led_to": ["weight", "cos"]}, True),
    ],
)
def test_what_tells_names_from_sizes(columns: dict[str, Any], found: bool) -> None:
    assert bool(said(Bf16IntegerPrecision(), integers(500, **columns))) is found


def test_the_worst_place_is_named_and_the_others_listed() -> None:
    run = integers(600, file="a.py", line=3)
    run.rounding(
        "integers", largest=4095.0, even_steps=True, led_to=[], changed=3000, distinct=4096, distinct_after=700,
        numel=4096, file="b.py", line=9, op="aten.arange",
    )  # fmt: skip
    (finding,) = said(Bf16IntegerPrecision(), run)
    assert finding.location.source == "b.py:9"
    assert any("a.py:3" in e.text for e in finding.evidence)
    assert "torch.arange(n" in finding.fixes[0].code


def phases(largest: float, **columns: Any) -> RunBuilder:
    """Return a run that takes cosines of phases in BF16."""
    row = {"op": "aten.cos", "dtype_in": "bfloat16", "dtype_out": "bfloat16", "led_to": ["product"]}
    return watched().rounding("phases", largest=largest, rms=largest / 8, **(row | columns))


@pytest.mark.parametrize(
    ("largest", "dtype", "error"),
    [(127.0, "bfloat16", None), (128.0, "bfloat16", 0.5), (1000.0, "float16", None), (2000.0, "float16", 0.5)],
)  # fmt: skip
def test_the_error_of_a_phase_is_half_a_last_place(largest: float, dtype: str, error: float | None) -> None:
    found = said(RopeHalfPrecision(), phases(largest, dtype_in=dtype, dtype_out=dtype))
    values = [e.value for f in found for e in f.evidence if e.name == "phase_error"]
    assert values == ([] if error is None else [error])


def test_positions_that_collided_come_after_rotary_phases() -> None:
    run = phases(1000.0).rounding(
        "integers", numel=1000, largest=999.0, changed=500, distinct=1000, distinct_after=500, even_steps=True,
        led_to=["cos"],
    )  # fmt: skip
    (root,) = diagnose(run.build(), rules=[Bf16IntegerPrecision(), RopeHalfPrecision()]).findings
    assert root.name == "rope-half-precision"
    assert [c.name for c in root.consequences] == ["bf16-integer-precision"]


def fp8(*energies: float, largest: list[float] | None = None) -> RunBuilder:
    """Return a run with one look per step at one cast to E4M3, of which clamping takes so much."""
    run = RunBuilder()
    for n, energy in enumerate(energies):
        run.step(loss=1.0).rounding(
            "float8", dtype_in="float32", dtype_out="float8_e4m3fn", nonzero=100, flushed=0, beyond=int(100 * energy),
            energy_beyond=energy, energy_flushed=0.0, largest=largest[n] if largest else 448.0,
        )  # fmt: skip
    return run


@pytest.mark.parametrize(
    ("energies", "largest", "found"),
    [
        ((0.0, 0.0, 0.3, 0.0, 0.0), None, False),
        ((0.0, 0.0, 0.0, 0.0, 0.3), None, False),
        ((0.0, 0.0, 0.0, 0.1, 0.3), None, True),
        ((0.0, 0.0, 0.01, 0.04, 0.3), [448.0, 448.0, 500.0, 600.0, 900.0], True),
        ((0.3, 0.3, 0.0, 0.0, 0.0), None, False),
        ((0.3, 0.3, 0.3, 0.3, 0.3), None, True),
    ],
    ids=["one batch", "the last batch", "drifted", "steadily", "at first", "always"],
)
def test_a_stale_scale_lasts(energies: tuple[float, ...], largest: list[float] | None, found: bool) -> None:
    assert bool(said(Fp8ScaleStale(), fp8(*energies, largest=largest))) is found


def test_a_scale_that_never_fitted_is_called_so() -> None:
    (never,) = said(Fp8ScaleStale(), fp8(0.3, 0.3))
    (no_longer,) = said(Fp8ScaleStale(), fp8(0.0, 0.3, 0.3))
    assert "does not fit" in never.summary
    assert "no longer fits" in no_longer.summary
    assert no_longer.location.first_step == 1


def sent(*flushed: int, dtype: str = "float16", **columns: Any) -> RunBuilder:
    """Return a run that sends 100 gradients a step, of which so many are flushed."""
    run = RunBuilder()
    for n in flushed:
        run.step(loss=1.0).call("backward").rounding(
            "sent", dtype_in="float32", dtype_out=dtype, nonzero=100, flushed=n, largest=1e-6,
            **({"beyond": 0, "energy_flushed": n / 1000} | columns),
        )  # fmt: skip
    return run


@pytest.mark.parametrize(
    ("run", "severity"),
    [
        (sent(20, 20), None),
        (sent(60, 60), Severity.WARNING),
        (sent(90, 90, energy_flushed=0.4), Severity.ERROR),
        (sent(90, 0, 0), None),
        (sent(90, 90, dtype="bfloat16"), None),
        (sent(0, 0, beyond=1), Severity.ERROR),
    ],
)
def test_what_is_sent_must_matter(run: RunBuilder, severity: Severity | None) -> None:
    found = said(CommHookUnderflow(), run)
    assert [f.severity for f in found] == ([] if severity is None else [severity])


def losses(*values: tuple[float, float], first: float = 1.0) -> RunBuilder:
    """Return a run with twins of its loss on some steps: its own, and that of the same outputs in FP32."""
    run = RunBuilder().step(loss=first)
    for own, fp32 in values:
        run.step(loss=own).twin_step("fp32")
        run.twin("run", "", "loss", value=own).twin(LOSS_ALONE, "", "loss", value=fp32)
    return run


@pytest.mark.parametrize(
    ("values", "severity"),
    [
        (((1.05, 1.0),), None),
        (((1.2, 1.0),), Severity.WARNING),
        (((-1.0, 1.0),), Severity.ERROR),
        (((0.0, 0.5),), Severity.ERROR),
        (((0.0, 0.001),), None),
        (((1.2, 1.0), (1.0, 1.0), (1.0, 1.0)), None),
        (((math.nan, 1.0),), None),
        (((math.inf, 1.0),), None),
    ],
)
def test_how_wrong_a_loss_must_be(values: tuple[tuple[float, float], ...], severity: Severity | None) -> None:
    found = said(LossInHalf(), losses(*values))
    assert [f.severity for f in found] == ([] if severity is None else [severity])


def test_micro_batches_are_added_up() -> None:
    run = losses((0.6, 0.5))
    run.twin("run", "", "loss", value=0.4, micro_batch=1).twin(LOSS_ALONE, "", "loss", value=0.5, micro_batch=1)
    assert not said(LossInHalf(), run)
