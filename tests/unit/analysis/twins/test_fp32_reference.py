"""What FP32 is called where matrices are multiplied in TF32."""

from __future__ import annotations

from typing import Any

import pytest

from ampdoctor.analysis.twins.fp32_reference import fp32_name
from ampdoctor.engine import diagnose
from ampdoctor.finding import Grade
from ampdoctor.trace.builder import RunBuilder

A100 = "cuda: NVIDIA A100-SXM4-40GB"
TF32 = "FP32 (with TF32 matmuls)"


@pytest.mark.parametrize(
    ("device", "precision", "module", "name"),
    [
        (A100, {"allow_tf32_matmul": True}, "Linear", TF32),
        (A100, {"allow_tf32_matmul": None, "float32_matmul_precision": "high"}, "Linear", TF32),
        (A100, {"allow_tf32_matmul": False, "allow_tf32_cudnn": True}, "Linear", "FP32"),
        (A100, {"allow_tf32_cudnn": True}, "Conv2d", "FP32 (with TF32 convolutions)"),
        (A100, {"allow_tf32_cudnn": False}, "Conv2d", "FP32"),
        (A100, {}, "Linear", "FP32"),
        ("cpu: x86_64, 8 threads", {"allow_tf32_matmul": True}, "Conv2d", "FP32"),
        ("cuda: Tesla V100-SXM2-16GB", {"allow_tf32_matmul": True}, "Linear", "FP32"),
    ],
)
def test_tf32_is_named_where_it_is_in_use(device: str, precision: dict[str, Any], module: str, name: str) -> None:
    run = RunBuilder(device=device, precision=precision).step().module("body", type=module)
    assert fp32_name(run.build()) == name


def _run(precision: dict[str, Any]) -> RunBuilder:
    run = RunBuilder(device=A100, precision=precision)
    for _ in range(6):
        run.step(loss=2.3).call("backward", scaled="none", factor=1.0)
        run.tensor("head", "grad_output", slot="cast", cast_to="float16", exponents={-30: 9900, -25: 100})
    # Turned as far in BF16, which flushes nothing: that is rounding.
    run.twin_step("fp32", "bf16").twin("run", "", "gradient", flushed=40, cosine=0.98)
    return run.twin("bf16", "", "gradient", number_format="bf16", cosine=0.98)


def test_evidence_names_it_and_what_may_be_rounding_is_not_called_measured() -> None:
    for precision, name, grade in (
        ({"allow_tf32_matmul": True}, TF32, Grade.ESTIMATED),
        ({"allow_tf32_matmul": False}, "FP32", Grade.MEASURED),
    ):
        (finding,) = diagnose(_run(precision).build()).findings
        told = {e.name: e for e in finding.evidence}
        assert f"to that of {name} is 0.98" in told["measured_cosine"].text
        assert told["measured_cosine"].grade is grade
        assert ("TF32 rounds as coarsely" in told["measured_cosine"].text) is (name == TF32)
        assert told["measured_flushed_share"].grade is Grade.MEASURED
