"""Why results stay FP32 under autocast.

Source: torch's "Autocast Op Reference" (torch.amp), by the names that these operations have once they are taken apart.
"""

from __future__ import annotations

_ON_CUDA = """
    _softmax _log_softmax native_layer_norm native_group_norm exp expm1 log log10 log2 log1p pow reciprocal rsqrt sinh
    cosh tan acos asin cumsum cumprod prod sum norm linalg_vector_norm renorm softplus nll_loss_forward
    nll_loss2d_forward binary_cross_entropy_with_logits mse_loss smooth_l1_loss huber_loss soft_margin_loss
    multi_margin_loss _cdist_forward _pdist_forward logsumexp
"""

_ON_CPU = """
    binary_cross_entropy mse_loss smooth_l1_loss huber_loss soft_margin_loss multi_margin_loss _cdist_forward prod
    cumprod logcumsumexp linalg_vector_norm _ctc_loss
"""

_BY_POLICY = {"cuda": frozenset(_ON_CUDA.split()), "cpu": frozenset(_ON_CPU.split())}
"""What autocast has compute in FP32, by kind of device."""

_SUMS = frozenset({"add", "add_", "sub", "sub_", "mul", "cat", "stack", "where"})

_OF_LOSSES = frozenset({"_log_softmax", "log_softmax", "nll_loss_forward", "nll_loss2d_forward"})

_CASTS = frozenset({"_to_copy", "to"})


def base(kind: str | None) -> str:
    """Return the bare name of an operation: `mm` of `aten.mm`."""
    return (kind or "").split(" ", 1)[0].rpartition(".")[2]


def is_cast(kind: str | None) -> bool:
    """Whether the operation changes the dtype of what it copies."""
    return base(kind) in _CASTS


def is_of_loss(kind: str | None) -> bool:
    """Whether the operation is a part of the cross-entropy, which code computes in FP32 where autocast does not."""
    return base(kind) in _OF_LOSSES


def is_sum(kind: str | None) -> bool:
    """Whether the operation puts tensors together, in the wider of their dtypes."""
    return base(kind) in _SUMS


def stays_fp32(kind: str | None, device: str) -> str | None:
    """Return why an operation's result is FP32 under autocast; None where nothing is known to make it so."""
    name = base(kind)
    reasons = (
        (name in _BY_POLICY.get(device.partition(":")[0], ()), f"autocast has `{name}` compute in FP32"),
        (is_cast(kind), "the code casts it to FP32 itself"),
        (is_of_loss(kind), f"the code hands `{name}` FP32"),
        (name == "embedding", "a look-up in an FP32 weight gives FP32"),
        (is_sum(kind), f"`{name}` takes an FP32 tensor beside a half one, and so gives FP32"),
        ("norm" in name, f"`{name}` is handed FP32, or keeps its statistics in it"),
    )
    return next((reason for holds, reason in reasons if holds), None)
