"""Makes torch's CPU operations choose as those of CUDA do, as far as memory depends on it.

Fake tensors on `cuda` would be the obvious way, but a build of torch without CUDA can't run a backward pass on them,
and one with CUDA but without a device can't choose an attention kernel. So the tensors say `cpu`, and while a step is
planned these operations are registered anew: autocast's lists, dropout and attention.
"""

from __future__ import annotations

import contextlib
import warnings
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FP32 = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim
    nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d
    hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss
    multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits
    dist pdist cdist renorm logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d
    _upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
    _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa
"""
"""Operations that autocast runs in FP32 on CUDA (AT_FORALL_FP32 in ATen/autocast_mode.h)."""

_FP32_UNLESS_ASKED = """
    prod prod.dim_int cumprod cumsum linalg_vector_norm linalg_matrix_norm linalg_matrix_norm.str_ord sum
    sum.dim_IntList
"""
"""Those that do so unless a dtype is asked for (AT_FORALL_FP32_SET_OPT_DTYPE); softmaxes are treated apart."""

_HALF = """
    _convolution.deprecated _convolution conv1d conv1d.padding conv2d conv2d.padding conv3d conv3d.padding conv_tbc
    conv_transpose1d conv_transpose2d.input conv_transpose3d.input prelu addmm matmul mm linalg_vecdot linear addbmm
    baddbmm bmm scaled_dot_product_attention
"""
"""Operations that autocast runs in half on both, and that keep CPU's kernel with its cache of weights."""

_PROMOTED = frozenset({"stack", "cat", "grid_sampler", "index_copy"})


@contextlib.contextmanager
def as_on_cuda() -> Iterator[None]:
    """While it lasts, CPU tensors of this process are treated so."""
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="(?s).*verriding a previously registered kernel")
            _register(library)
        yield
    finally:
        library._destroy()


def _register(library: torch.library.Library) -> None:
    ours: dict[str, Callable[..., Any]] = {}
    for names, policy in ((_FP32, _in_fp32), (_FP32_UNLESS_ASKED, _in_fp32_unless_asked)):
        ours |= {name: policy(op) for name in names.split() if (op := _operation(name)) is not None}
    ours["softmax.int"] = _softmax(torch.ops.aten.softmax.int, torch.ops.aten._softmax.default)
    ours["log_softmax.int"] = _softmax(torch.ops.aten.log_softmax.int, torch.ops.aten._log_softmax.default)
    kept = {*ours, *_HALF.split(), *_PROMOTED}
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCPU"):
        of_cpu = name.removeprefix("aten::")
        if name.startswith("aten::") and of_cpu not in kept:
            library.impl(of_cpu, torch.library.fallthrough_kernel, "AutocastCPU")
    for name, kernel in ours.items():
        library.impl(name, kernel, "AutocastCPU")
    library.impl("dropout", _dropout, "AutogradCPU")
    library.impl("scaled_dot_product_attention", _attention, "AutogradCPU")


def _operation(name: str) -> Any:
    """Return the operation; None where this release of torch has none of the name."""
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base, None), overload or "default", None)


def _without_autocast(act: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(act)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        torch.set_autocast_enabled("cpu", False)
        try:
            return act(*args, **kwargs)
        finally:
            torch.set_autocast_enabled("cpu", True)

    return kernel


def _in_fp32(operation: Any) -> Callable[..., Any]:
    def act(*args: Any, **kwargs: Any) -> Any:
        return operation(*map(_widened, args), **{k: _widened(v) for k, v in kwargs.items()})

    return _without_autocast(act)


def _in_fp32_unless_asked(operation: Any) -> Callable[..., Any]:
    def act(*args: Any, **kwargs: Any) -> Any:
        if _is_half(args[0]) and kwargs.get("dtype") is None:
            kwargs["dtype"] = torch.float32
        return operation(*args, **kwargs)

    return _without_autocast(act)


def _softmax(operation: Any, of_half: Any) -> Callable[..., Any]:
    """CUDA's kernels read FP16 and write FP32, without a copy in between."""

    def act(x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
        wide = torch.float32 if dtype is None and x.is_floating_point() else dtype
        if x.dtype == torch.float16 and wide == torch.float32:
            return of_half(x, dim, True)
        return operation(x, dim, wide)

    return _without_autocast(act)


def _dropout(x: torch.Tensor, p: float, train: bool) -> Any:
    """CUDA keeps one byte for each element, a CPU a factor of the input's dtype."""
    if not train or p in {0.0, 1.0}:
        return torch.ops.aten.dropout.default.decompose(x, p, train)
    return torch.ops.aten.native_dropout.default(x, p, train)[0]


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """CUDA's fused kernels draw dropout themselves and keep nothing for it; the CPU's know none."""
    del dropout_p
    attend: Any = torch.ops.aten.scaled_dot_product_attention.default.decompose
    return attend(query, key, value, mask, 0.0, is_causal, **options)


def _is_half(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in {torch.float16, torch.bfloat16}


def _widened(value: Any) -> Any:
    return value.float() if _is_half(value) else value
