"""Operations whose kernels check their arguments on the device, where a failed check ends the process for good.

On the CPU an index out of range is an error like any other. On CUDA it is a device-side assert or a read of memory
that isn't there: every later call of the user's fails as well. What a twin computes may be out of range where the run
is not, so on a device no index of a twin's gets into such an operation. The names are those of ATen's kernels with a
CUDA_KERNEL_ASSERT, and of those that index memory without asking. Indices that an operation gets from its own forward
alone (of a max pooling) are in range in every world, and random draws (multinomial, bernoulli) are the run's anyhow.

Local twins need none of this: they are given the run's own integers and, exactly, its values.
"""

from __future__ import annotations

from enum import Enum

import torch


class Checks(Enum):
    """What is checked on the device."""

    NOTHING = "nothing"
    INDICES = "indices"
    MASKS = "masks"
    """How many elements a mask selects."""
    VALUES = "values"
    """Numbers that are twins' whatever one does."""


_NAMES = """
    embedding embedding_dense_backward embedding_renorm embedding_backward embedding_sparse_backward
    _embedding_bag _embedding_bag_forward_only _embedding_bag_backward _embedding_bag_dense_backward
    _embedding_bag_sparse_backward _embedding_bag_per_sample_weights_backward
    index index_put _index_put_impl _unsafe_index _unsafe_index_put _unsafe_masked_index
    _unsafe_masked_index_put_accumulate index_add index_copy index_fill index_reduce index_select
    index_select_backward gather gather_backward _gather_sparse_backward scatter scatter_add scatter_reduce
    take take_along_dim put value_selecting_reduction_backward
    nll_loss nll_loss_forward nll_loss_backward nll_loss2d nll_loss2d_forward nll_loss2d_backward nll_loss_nd
    multi_margin_loss multi_margin_loss_backward multilabel_margin_loss multilabel_margin_loss_forward
    multilabel_margin_loss_backward _ctc_loss _ctc_loss_backward _cudnn_ctc_loss
    max_unpool2d max_unpool3d repeat_interleave segment_reduce _segment_reduce_backward bincount
    _jagged_to_padded_dense_forward _padded_dense_to_jagged_forward
    _flash_attention_forward _flash_attention_backward _efficient_attention_forward _efficient_attention_backward
    _grouped_mm _scaled_grouped_mm lu_unpack linalg_lu_solve lu_solve
"""
_INDICES = frozenset(_NAMES.split())
_MASKS = frozenset({"masked_scatter"})
_VALUES = frozenset({"binary_cross_entropy", "_functional_assert_async"})


def checks_of(base: str) -> Checks:
    """Return what the operation `base` (`index_put_`) checks."""
    plain = base.rstrip("_")
    if plain in _INDICES:
        return Checks.INDICES
    if plain in _MASKS:
        return Checks.MASKS
    return Checks.VALUES if plain in _VALUES else Checks.NOTHING


def fatal(device: torch.device) -> bool:
    """Whether a failed check on `device` can't be survived."""
    return device.type != "cpu"


def of_the_run(tensor: torch.Tensor, checks: Checks) -> bool:
    """Whether an argument has to be the run's own: an index, not a mask, which selects what is there."""
    if tensor.is_floating_point() or tensor.is_complex():
        return False
    return checks is Checks.MASKS or tensor.dtype is not torch.bool
