"""Whether flushing matters: what a twin step measured, when it speaks for the run, and when rounding is to blame."""

from __future__ import annotations

from typing import Any

import pytest

from ampdoctor.analysis.backward.limits import Limits
from ampdoctor.analysis.backward.materiality import Harm, Materiality, materiality
from ampdoctor.analysis.backward.vanishing import vanishing
from ampdoctor.analysis.words.measured_report import measured_evidence, measured_location, what_measured
from ampdoctor.finding import Confidence, Grade, Severity
from ampdoctor.rules.gradient_underflow import GradientUnderflow
from ampdoctor.trace.builder import RunBuilder

FAR = {-12: 5000, -11: 5000}
GONE = {-24: 50}


def _steps(*exponents: dict[int, int], twin_on: int, optimizer: str = "AdamW", **twin: Any) -> RunBuilder:
    """One step per histogram of FP16 gradients, with a twin step on `twin_on`."""
    run = RunBuilder(device="cpu")
    for step, kept in enumerate(exponents):
        run.step(loss=2.3)
        if step == 0:
            run.optimizer(optimizer)
        zeros = 10000 - sum(kept.values())
        run.tensor("head", "grad_output", dtype="float16", exponents=kept, zeros=zeros)
        if step == twin_on:
            _whole(run.twin_step("fp32"), "run", **twin)
    return run


def _whole(run: RunBuilder, setting: str, cosine: float | None = 1.0, **columns: Any) -> RunBuilder:
    return run.twin(setting, "", "gradient", **({"cosine": cosine, "norm_ratio": cosine} | columns))


def _judge(run: RunBuilder) -> Materiality:
    built = run.build()
    found = vanishing(built, Limits())
    assert found is not None
    told = materiality(built, found, Limits())
    assert told is not None
    return told


@pytest.mark.parametrize(
    ("twin", "harm"),
    [
        ({"flushed": 0, "cosine": 0.9}, Harm.NOTHING_FLUSHED),
        ({"flushed": 40, "cosine": 0.9995}, Harm.HARMLESS),
        ({"flushed": 40, "cosine": 1.0, "norm_ratio": 0.98}, Harm.UNCLEAR),
        ({"flushed": 40, "cosine": 0.995}, Harm.UNCLEAR),
        ({"flushed": 40, "cosine": 0.98}, Harm.PART),
        ({"flushed": 40, "cosine": 0.85}, Harm.WHOLE),
        ({"flushed": 100, "cosine": None, "norm_ratio": 0.0}, Harm.WHOLE),
        ({"flushed": 1, "numel": 10**6, "nonzero": 10**6, "cosine": 0.9}, Harm.UNCLEAR),
        ({"flushed": 1, "nonzero": 10**6, "cosine": 0.88, "energy_lost": 0.1}, Harm.WHOLE),
        ({"flushed": 40, "cosine": 0.9, "norm_ratio": 1024.0}, Harm.UNCLEAR),
    ],
    ids=[
        "rounding alone", "harmless", "shorter", "in between", "part", "whole", "all gone", "too few to explain it",
        "few, and large", "another loss scale",
    ],
)  # fmt: skip
def test_harm_is_told_from_direction_and_length(twin: dict[str, Any], harm: Harm) -> None:
    assert _judge(_steps(FAR, FAR, FAR, twin_on=2, **twin)).harm is harm


@pytest.mark.parametrize(
    ("setting", "columns", "harm"),
    [
        ("bf16", {"cosine": 0.999}, Harm.WHOLE),
        ("bf16", {"cosine": 0.86}, Harm.UNCLEAR),
        ("fp16@2^10", {"loss_scale": 1024.0, "cosine": 0.9999}, Harm.WHOLE),
        ("fp16@2^10", {"loss_scale": 1024.0, "cosine": 0.86, "flushed": 1}, Harm.UNCLEAR),
        ("fp16@2^10", {"loss_scale": 1024.0, "cosine": 0.86, "flushed": 38}, Harm.WHOLE),
        ("fp16@2^-4", {"loss_scale": 2.0**-4, "cosine": 0.5, "flushed": 60}, Harm.WHOLE),
        ("fp16+fp32:head", {"fp32_modules": ["head"], "cosine": 0.9999}, Harm.WHOLE),
    ],
)
def test_a_setting_with_more_range_tells_flushing_from_rounding(
    setting: str, columns: dict[str, Any], harm: Harm
) -> None:
    run = _steps(FAR, FAR, FAR, twin_on=2, flushed=40, cosine=0.85, energy_lost=0.2)
    assert _judge(_whole(run, setting, **columns)).harm is harm


def _tensors(optimizer: str, hurt: int) -> RunBuilder:
    """Four weight gradients, of which `hurt` are gone; the whole gradient does not show it."""
    run = _steps(FAR, FAR, FAR, twin_on=2, optimizer=optimizer, flushed=40, cosine=0.99999)
    for index in range(4):
        gone = {"flushed": 100, "cosine": None, "norm_ratio": 0.0, "energy_lost": 1.0}
        columns = gone if index < hurt else {}
        run.twin("run", f"m{index}", "weight_grad", shape=[10, 10], **columns)
    return run


@pytest.mark.parametrize(
    ("optimizer", "hurt", "harm"),
    [("AdamW", 0, Harm.HARMLESS), ("AdamW", 1, Harm.PART), ("AdamW", 3, Harm.WHOLE), ("SGD", 3, Harm.HARMLESS)],
)
def test_where_the_optimizer_scales_each_weight_they_count_by_themselves(optimizer: str, hurt: int, harm: Harm) -> None:
    told = _judge(_tensors(optimizer, hurt))
    assert told.harm is harm
    if harm >= Harm.PART:
        assert what_measured(told).startswith(f"on step 2, {hurt} of 4 weight gradients")
        assert measured_location(told).sites[0] == "m0.weight (weight_grad)"


def test_a_vector_that_is_gone_is_no_harm() -> None:
    run = _tensors("AdamW", 0).twin("run", "m0", "weight_grad", slot="bias", flushed=100, cosine=None)
    assert _judge(run).harm is Harm.HARMLESS


def test_a_harmless_step_does_not_speak_for_later_ones_that_look_worse() -> None:
    early = _judge(_steps(FAR, GONE, GONE, GONE, twin_on=0, flushed=40, cosine=0.9999))
    assert (early.harm, early.speaks, early.early) == (Harm.HARMLESS, False, True)
    alike = _judge(_steps(GONE, GONE, GONE, GONE, twin_on=0, flushed=40, cosine=0.9999))
    assert alike.harmless


def test_a_harmful_step_does_not_speak_once_the_scale_has_grown() -> None:
    run = RunBuilder()
    for step, scale in enumerate((1.0, 1.0, 1024.0, 1024.0)):
        run.step(loss=2.3, loss_scale=scale)
        run.tensor("head", "grad_output", dtype="float16", exponents=FAR, loss_scale=scale)
        if step == 1:
            _whole(run.twin_step("fp32"), "run", 0.7, flushed=40)
    told = _judge(run)
    assert told.harm is Harm.WHOLE
    assert not told.harmful


def test_the_latest_twin_step_speaks_and_the_one_before_is_told() -> None:
    run = _steps(FAR, FAR, twin_on=0, flushed=2, cosine=0.9999)
    run.step(loss=2.3).tensor("head", "grad_output", dtype="float16", exponents=FAR)
    _whole(run.twin_step("fp32"), "run", 0.7, flushed=40)
    run.op("aten.mm", "body", first_lost=3, flushed=9, energy_lost=0.3, direction="backward")
    told = _judge(run)
    assert told.harmful
    texts = {e.name: e.text for e in measured_evidence(run.build(), told)}
    assert "flushed 2.0 %, cosine 0.9999" in texts["measured_flushed_share_before"]
    assert "`aten.mm` at `body`, backward: 9 of 100 elements, 30.0 %" in texts["first_lost_energy"]


@pytest.mark.parametrize("loss", [2.3, None])
def test_a_later_collapse_is_not_hidden_by_an_early_harmless_twin(loss: float | None) -> None:
    """What looks gone to the estimate was harmless on step 2; later everything is zero."""
    run = _steps(GONE, GONE, GONE, twin_on=2, flushed=40, cosine=0.9999)
    for _ in range(6):
        run.step(loss=loss).tensor("head", "grad_output", dtype="float16", zeros=10000)
    told = _judge(run)
    assert told.harm is Harm.HARMLESS
    assert not told.speaks
    (finding,) = GradientUnderflow().check(run.build())
    assert finding.severity is Severity.ERROR
    assert "Harmless" not in finding.summary


def test_nor_where_the_estimate_had_called_the_harmless_step_as_bad() -> None:
    run = RunBuilder(device="cpu")
    for step in range(8):
        kept = GONE if step <= 2 else {}
        run.step(loss=2.3)
        for module, exponents in (("head", kept), ("body", {})):
            zeros = 10000 - sum(exponents.values())
            run.tensor(module, "grad_output", dtype="float16", exponents=exponents, zeros=zeros)
        if step == 2:
            _whole(run.twin_step("fp32"), "run", 0.9999, flushed=40)
    assert not _judge(run).speaks
    (finding,) = GradientUnderflow().check(run.build())
    assert finding.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("exponents", "twin_on", "cosine", "alone"),
    [
        ([FAR, FAR, FAR], 2, 0.7, True),
        ([FAR, FAR, FAR, FAR, FAR], 2, 0.7, True),
        ([FAR, FAR, FAR, GONE, GONE], 2, 0.7, False),
        ([FAR, FAR, FAR, FAR], 3, 0.7, False),
        ([GONE, GONE, GONE, GONE, GONE], 2, 0.9999, True),
        ([GONE, GONE, GONE, FAR, FAR], 2, 0.9999, False),
        ([FAR, FAR, FAR, FAR, FAR], 2, 0.995, True),
    ],
    ids=[
        "nothing later", "later ones look well", "later ones look as bad", "no early one", "later ones look bad",
        "later ones look as well", "unclear",
    ],
)  # fmt: skip
def test_one_early_step_is_less_sure_unless_later_ones_agree(
    exponents: list[dict[int, int]], twin_on: int, cosine: float, alone: bool
) -> None:
    run = _steps(*exponents, twin_on=twin_on, flushed=40, cosine=cosine)
    told = _judge(run)
    assert told.alone is alone
    assert told.confidence is (Confidence.MEDIUM if alone else Confidence.HIGH)
    texts = {e.name: e.text for e in measured_evidence(run.build(), told)}
    assert ("only_step_measured" in texts) is alone
    assert f"n step {twin_on} " in texts["measured_cosine"]
    assert f"on step {twin_on}, " in what_measured(told)


@pytest.mark.parametrize(("first", "alone"), [(0.8, False), (0.9999, True), (0.995, True)])
def test_a_second_twin_step_that_agrees_makes_it_sure(first: float, alone: bool) -> None:
    run = _steps(FAR, FAR, twin_on=1, flushed=40, cosine=first)
    run.step(loss=2.3).tensor("head", "grad_output", dtype="float16", exponents=FAR)
    _whole(run.twin_step("fp32"), "run", 0.7, flushed=40)
    for _ in range(3):
        run.step(loss=2.3).tensor("head", "grad_output", dtype="float16", exponents=FAR)
    assert _judge(run).alone is alone


def test_the_finding_is_as_sure_as_the_step() -> None:
    run = _steps(FAR, FAR, FAR, FAR, FAR, twin_on=2, flushed=40, cosine=0.7)
    (finding,) = GradientUnderflow().check(run.build())
    assert (finding.confidence, finding.grade) == (Confidence.MEDIUM, Grade.MEASURED)
    assert "on step 2, 40.0 % of the whole gradient's elements" in finding.summary


@pytest.mark.parametrize(
    ("ratio", "told"),
    [
        (0.25, "The norm of the whole gradient on step 1 is 0.25 times that of FP32."),
        (0.0, "Nothing is left of the gradient on step 1: its norm is 0, and that of FP32 is not."),
    ],
)
def test_the_norm_says_whose_it_is_and_that_nothing_is_left(ratio: float, told: str) -> None:
    run = _steps(FAR, FAR, twin_on=1, flushed=100, cosine=0.5, norm_ratio=ratio)
    texts = {e.name: (e.value, e.text) for e in measured_evidence(run.build(), _judge(run))}
    assert texts["measured_norm_ratio"] == (ratio, told)


def test_a_converged_step_is_not_judged() -> None:
    run = _steps(FAR, FAR, FAR, twin_on=9)
    run.step(loss=1e-4).tensor("head", "grad_output", dtype="float16", exponents=GONE, zeros=9950)
    built = _whole(run.twin_step("fp32"), "run", 0.5, flushed=60).build()
    found = vanishing(built, Limits())
    assert found is not None
    assert materiality(built, found, Limits()) is None
