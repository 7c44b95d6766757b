"""The rules about autocast and the scaler's set-up: their numbers, and where they must not be mistaken."""

from __future__ import annotations

from typing import Any

import pytest

from ampdoctor.engine import diagnose
from ampdoctor.finding import Confidence, Grade, Severity
from ampdoctor.rules import find_rule
from ampdoctor.trace.builder import RunBuilder

HALF: dict[str, Any] = {"dtype": "bfloat16", "autocast": "bfloat16", "exponents": {0: 10}}
FP32: dict[str, Any] = {"exponents": {0: 10}}


def _enter(run: RunBuilder, **columns: Any) -> RunBuilder:
    block = {"target": "autocast0", "device_type": "cpu", "dtype": "bfloat16", "asked": True}
    return run.call("autocast_enter", **(block | {"autocast": "bfloat16"} | columns))


def _found(rule: str, run: RunBuilder) -> list[Any]:
    return list(find_rule(rule)().check(run.build()))


def test_fp32_in_a_block_that_is_switched_off_within_is_no_thread() -> None:
    run = _enter(RunBuilder().step(loss=1.0).module("head", device="cpu"))
    _enter(run, target="autocast1", asked=False, autocast=None).tensor("head", "activation", **FP32)
    run.call("autocast_exit", target="autocast1").call("autocast_exit", target="autocast0", nodes=0)
    assert _found("autocast-not-active", run) == []


def test_an_evaluation_under_autocast_beside_training_in_fp32() -> None:
    run = _enter(RunBuilder().step(loss=1.0).module("head", device="cpu"))
    run.tensor("head", "activation", grad_enabled=False, **HALF)
    run.call("autocast_exit", target="autocast0", nodes=2).tensor("head", "activation", **FP32)
    assert _found("autocast-not-active", run) == []


def test_a_thread_with_autocast_of_its_own() -> None:
    run = _enter(RunBuilder().step(loss=1.0))
    run.call("threaded_call", target="head", autocast="bfloat16", optimizers=["optimizer0"])
    assert _found("autocast-not-active", run) == []


def test_a_thread_whose_modules_nobody_here_trains() -> None:
    run = _enter(RunBuilder().step(loss=1.0))
    run.call("threaded_call", target="other", dtype="float32", optimizers=[])
    assert _found("autocast-not-active", run) == []


def test_a_scaler_beside_autocast_that_is_not_active_is_a_consequence() -> None:
    run = RunBuilder(device="cpu: x86_64").step(loss=1.0, loss_scale=65536.0)
    run.module("head", device="cpu")
    _enter(run, device_type="cuda", dtype="float16", autocast=None)
    run.tensor("head", "activation", **FP32).scaler("seen", enabled=True, scale=65536.0)
    first, *rest = diagnose(run.build()).faults
    assert (first.name, rest) == ("autocast-not-active", [])
    assert [c.name for c in first.consequences] == ["scaler-unneeded"]


def test_fp16_in_a_communication_hook_needs_its_scaler() -> None:
    run = RunBuilder().step(loss=1.0).tensor("head", "activation", **FP32)
    run.scaler("seen", enabled=True, scale=65536.0).call("comm_hook")
    assert _found("scaler-unneeded", run) == []


def test_a_scaler_that_refuses_bf16_is_an_error() -> None:
    error = "RuntimeError: \"unscale\" not implemented for 'BFloat16'"
    run = RunBuilder().tensor("head", "activation", step=0, **HALF)
    run.scaler("seen", enabled=True, scale=65536.0, step=0)
    run.call("scaler_step", error=error, step=0)
    (finding,) = _found("scaler-unneeded", run)
    assert finding.severity is Severity.ERROR


def test_an_epoch_of_a_stale_block_names_its_line() -> None:
    run = RunBuilder().step(loss=1.0)
    _enter(run, file="train.py", line=3, cache_enabled=True, depth=0)
    run.call("backward", stale_casts=0).step(loss=1.0).call("backward", stale_casts=6)
    (finding,) = _found("autocast-stale-weight-cache", run)
    assert finding.location.source == "train.py:3"
    assert [e.value for e in finding.evidence if e.name == "stale_weight_copies"] == [6]


def test_the_ratio_of_a_later_epoch_is_the_policys_own() -> None:
    run = RunBuilder().step(loss=0.0).tensor("policy", "activation", grad_enabled=False, **HALF)
    run.tensor("policy", "activation", **HALF).call("backward", ratio_error=0.0).step(loss=0.0)
    run.tensor("policy", "activation", grad_enabled=False, **FP32)
    run.tensor("policy", "activation", **HALF).call("backward", ratio_error=0.3)
    assert _found("train-infer-dtype-mismatch", run) == []


def test_reentrant_checkpointing_beside_an_evaluation_in_fp32() -> None:
    run = RunBuilder().step(loss=1.0).tensor("block", "activation", grad_enabled=False, **FP32)
    run.tensor("block", "activation", grad_enabled=False, **HALF).call("backward")
    run.tensor("block", "activation", micro_batch=0, **HALF)
    assert _found("checkpoint-autocast-lost", run) == []


def test_a_scaler_that_looks_for_its_scale_is_no_harm_of_autocasts() -> None:
    run = RunBuilder()
    for step, scale in enumerate((65536.0, 32768.0, 16384.0)):
        bad = 4 if step < 2 else 0
        run.step(loss=1.0, loss_scale=scale, found_inf=bad > 0)
        run.tensor("head", "activation", exponents={0: 64})
        run.call("backward", autocast="float16")
        run.tensor("head", "grad_output", exponents={13: 64}, loss_scale=scale)
        run.tensor("head", "weight_grad", slot="weight", shape=[1, 16], posinf=bad, exponents={14: 16 - bad})
    (finding,) = _found("backward-under-autocast", run)
    assert finding.severity is Severity.NOTE


@pytest.mark.parametrize(
    ("cast", "grade", "confidence"),
    [(None, Grade.ESTIMATED, Confidence.MEDIUM), ("float16", Grade.MEASURED, Confidence.HIGH)],
    ids=["worked out", "seen"],
)
def test_a_flush_in_a_cast_that_was_not_seen_is_an_estimate(
    cast: str | None, grade: Grade, confidence: Confidence
) -> None:
    run = RunBuilder().step(loss=1.0)
    run.tensor("head", "activation", exponents={0: 64}).call("backward", autocast="float16")
    run.tensor("head", "grad_output", exponents={-30: 64})
    if cast:
        run.tensor("head", "grad_output", slot="cast", cast_to=cast, exponents={-30: 64})
    run.tensor("head", "weight_grad", slot="weight", shape=[1, 16], exponents={-30: 16})
    (finding,) = _found("backward-under-autocast", run)
    assert (finding.grade, finding.confidence) == (grade, confidence)
    shares = {e.name: e.grade for e in finding.evidence if e.name in ("flushed_share", "energy_lost")}
    assert shares == {"flushed_share": grade, "energy_lost": grade}
