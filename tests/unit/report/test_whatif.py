"""What the page of a what-if says where little or nothing is known, and of runs in FP32 and BF16."""

from __future__ import annotations

import json

import pytest

from ampdoctor.analysis.advice.whatif import WhatIf, recorded_step, what_if
from ampdoctor.formats import FP16
from ampdoctor.report.whatif import document, page
from ampdoctor.trace.builder import RunBuilder


def _text(answer: WhatIf) -> str:
    """Return the page with its lines joined."""
    return " ".join(page(answer, "").plain().split())


def _gone(dtype: str = "float16") -> RunBuilder:
    run = RunBuilder().step()
    run.tensor("head", "grad_output", dtype=dtype, zeros=1000, shape=[100, 10])
    return run.tensor("head", "weight_grad", slot="weight", zeros=100, shape=[10, 10])


def test_where_nothing_is_left_nothing_is_known() -> None:
    recorded = recorded_step(_gone().build())
    for scale in (2.0**-4, 1.0, 1024.0):
        answer = what_if(recorded, FP16, scale)
        assert answer.gone
        shares = (answer.total.estimated, answer.total.low, answer.total.high)
        assert shares == (None, 0.0, 1.0)
        text = _text(answer)
        assert "nothing can be known: every weight gradient asked about is zero on step 0" in text


def test_what_was_zero_in_fp32_has_nothing_to_flush() -> None:
    answer = what_if(recorded_step(_gone("float32").build()), FP16, 1.0)
    assert (answer.gone, answer.total.estimated, answer.total.high) == (True, None, None)
    assert "nothing to flush" in _text(answer)


@pytest.mark.parametrize(("kind", "flushed"), [("Linear", 1.0), ("LayerNorm", 0.0), ("Embedding", 0.0)])
def test_a_run_in_fp32_is_asked_what_autocast_would_do(kind: str, flushed: float) -> None:
    run = RunBuilder().step().module("head", type=kind)
    run.tensor("head", "grad_output", exponents={-30: 1000}, shape=[100, 10])
    run.tensor("head", "weight_grad", slot="weight", exponents={-28: 100}, shape=[10, 10])
    recorded = recorded_step(run.build())
    answer = what_if(recorded, FP16)
    assert (answer.own_format, answer.total.estimated) == (None, flushed)
    assert what_if(recorded, FP16, 1024.0).total.estimated == 0.0
    assert "under autocast" in _text(answer)
    assert "whether FP16 would hold this" in _text(what_if(recorded))


def test_where_only_a_cast_is_known_a_larger_scale_is_not() -> None:
    run = RunBuilder().step()
    run.tensor("head", "grad_output", slot="cast", cast_to="float16", exponents={-30: 1000})
    run.tensor("head", "grad_output", dtype="float16", zeros=1000, shape=[100, 10])
    run.tensor("head", "weight_grad", slot="weight", zeros=100, shape=[10, 10])
    recorded = recorded_step(run.build())
    assert "100 % of the weight gradients is flushed (estimated" in _text(what_if(recorded))
    assert "nothing can be known: little or nothing is left" in _text(what_if(recorded, FP16, 2.0**10))


def test_what_was_measured_says_on_which_step() -> None:
    run = RunBuilder().step().step()
    run.tensor("head", "grad_output", dtype="float16", exponents={-2: 1000}, shape=[100, 10])
    run.tensor("head", "weight_grad", slot="weight", exponents={-6: 100}, shape=[10, 10])
    run.twin("run", "head", "weight_grad", flushed=7)
    answer = what_if(recorded_step(run.build()))
    assert "7.0 % of the weight gradients is flushed (measured on step 1)" in _text(answer)
    assert json.loads(document(answer, ""))["gone"] is False


def test_a_run_in_bf16_says_so() -> None:
    run = RunBuilder().step()
    run.tensor("head", "grad_output", dtype="bfloat16", exponents={-30: 1000}, shape=[100, 10])
    run.tensor("head", "weight_grad", slot="weight", exponents={-28: 100}, shape=[10, 10])
    recorded = recorded_step(run.build())
    assert _text(what_if(recorded)).startswith("BF16 at loss scale 1: 0 %")
    text = _text(what_if(recorded, FP16))
    assert text.startswith("FP16 at loss scale 1: 100 %")
    assert "recorded in BF16" in text
    assert "under autocast" not in text
