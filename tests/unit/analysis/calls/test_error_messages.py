"""Wordings of torch's versions and devices, and those that mean something else."""

from __future__ import annotations

import pytest

from ampdoctor.analysis.calls.error_messages import ANOMALY, CONSTANT, mismatched

FP16_FP32 = {"float16", "float32"}


@pytest.mark.parametrize(
    ("message", "dtype", "value"),
    [
        ("value cannot be converted to type at::Half without overflow", "Half", None),
        ("value cannot be converted to type c10::Half without overflow", "Half", None),
        ("value cannot be converted to type at::Half without overflow: -1e+09", "Half", "-1e+09"),
        ("value cannot be converted to type at::Half without overflow: -1e+10", "Half", "-1e+10"),
        ("value cannot be converted to type c10::BFloat16 without overflow", "BFloat16", None),
        ("value cannot be converted to type c10::Float8_e4m3fn without overflow", "Float8_e4m3fn", None),
    ],
)  # fmt: skip
def test_a_constant_that_does_not_fit(message: str, dtype: str, value: str | None) -> None:
    match = CONSTANT.search(message)
    assert match is not None
    assert (match["dtype"], match["value"]) == (dtype, value)


@pytest.mark.parametrize("kind", ["int64_t", "float", "double", "uint8_t"])
def test_other_conversions_are_no_matter_of_half(kind: str) -> None:
    assert not CONSTANT.search(f"value cannot be converted to type {kind} without overflow")


@pytest.mark.parametrize(
    "message",
    [
        "mat1 and mat2 must have the same dtype, but got Float and Half",
        "mat1 and mat2 must have the same dtype",
        "expected m1 and m2 to have the same dtype, but got: float != c10::Half",
        "expected scalar type Half but found Float",
        "Expected object of scalar type Float but got scalar type Half for argument #2 'mat2' in call to _th_mm",
        "Input type (float) and bias type (c10::Half) should be the same",
        "Input type (torch.cuda.FloatTensor) and weight type (torch.cuda.HalfTensor) should be the same",
        "self and mat2 must have the same dtype, but got Float and Half",
        "dot : expected both vectors to have same dtype, but found Float and Half",
        "addmv input tensors must have the same dtype, but got Half, Float, and Half",
        "mixed dtype (CPU): expect parameter to have scalar type of Float",
        "RNN input dtype (torch.float32) does not match weight dtype (torch.float16).",
        "Expected query, key, and value to have the same dtype, but got query.dtype: float key.dtype: c10::Half",
        "Found dtype Float but expected Half",
        "Index put requires the source and destination dtypes match, got Float for the destination and Half for the",
        "index_add_(): self (Float) and source (Half) must have the same scalar type",
        "index_copy_(): self and source expected to have the same dtype, but got (self) Float and (source) Half",
        "scatter(): Expected self.dtype to be equal to src.dtype",
        "masked_scatter: expected self and source to have same dtypes but gotHalf and Float",
        "expected dtype float for `end` but got dtype c10::Half",
        "Input dtypes must be the same, got: input float, batch1: c10::Half, batch2: c10::Half",
        "prelu: Type promoting not supported. Got Half and Float",
        "All tensors must have the same dtype, got input1: float, input2: c10::Half, weight: float",
        "the same type as tensor for argument #2; but type torch.cuda.FloatTensor does not equal torch.cuda.HalfTensor",
        "result type Float can't be cast to the desired output type Half",
        "attempting to assign a gradient with dtype 'c10::Half' to a tensor with grad_dtype 'Float'.",
        "params, grads, exp_avgs, and exp_avg_sqs must have same dtype, device, and layout",
        "expected backend CUDA and dtype Float but got backend CUDA and dtype Half",
    ],
)  # fmt: skip
def test_two_floating_dtypes_meet(message: str) -> None:
    dtypes = mismatched(message, half_about=True)
    assert dtypes is not None
    assert set(dtypes) <= FP16_FP32
    if len(dtypes) < 2:  # then only with half precision in use
        assert mismatched(message, half_about=False) is None


@pytest.mark.parametrize(
    "message",
    [
        "mat1 and mat2 must have the same dtype, but got Double and Float",
        "expected scalar type Long but found Float",
        "expected scalar type Long but found Half",
        "Input type (torch.cuda.HalfTensor) and weight type (torch.HalfTensor) should be the same",
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        "Expected all devices to be of the same type, but got a mismatch between cuda and cpu",
        "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
        "index_select(): Expected dtype int32 or int64 for index",
        "expected target dtype to be Long or Byte, but got Float",
        "shape '[3]' is invalid for input of size 4",
        "CUDA out of memory. Tried to allocate 20.00 MiB",
        "\"addmm_impl_cpu_\" not implemented for 'Half'",
    ],
)
def test_what_is_no_meeting_of_half_and_another(message: str) -> None:
    assert mismatched(message, half_about=True) is None


def test_the_function_that_anomaly_mode_names() -> None:
    match = ANOMALY.search("Function 'MmBackward' returned nan values in its 0th output.")
    assert match is not None
    assert (match["node"], match["output"]) == ("MmBackward", "0")
