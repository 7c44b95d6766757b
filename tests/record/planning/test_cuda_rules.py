"""CPU tensors that are treated as CUDA's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from ampdoctor.record.planning import cuda_rules
from ampdoctor.record.planning.cuda_rules import as_on_cuda

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"


def listed(macro: str) -> set[str]:
    """Return the operations of a list in torch's header."""
    text = HEADER.read_text(encoding="utf-8")
    found = re.search(rf"#define {macro}\(_\)(.*?[^\\])\n", text, re.DOTALL)
    assert found is not None
    return {name.replace(", ", ".") for name in re.findall(r"_\((\w+(?:, \w+)?)\)", found[1])}


@pytest.mark.skipif(not HEADER.is_file(), reason="torch came without its headers")
def test_the_lists_are_those_of_torch() -> None:
    assert set(cuda_rules._FP32.split()) == listed("AT_FORALL_FP32")
    asked = set(cuda_rules._FP32_UNLESS_ASKED.split()) | {"softmax.int", "log_softmax.int"}
    assert asked == listed("AT_FORALL_FP32_SET_OPT_DTYPE")


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_softmax_and_norms_are_in_fp32(half: torch.dtype) -> None:
    x = torch.randn(2, 8, dtype=half)
    with as_on_cuda(), torch.autocast("cpu", half):
        assert F.layer_norm(x, (8,)).dtype == x.sum().dtype == torch.float32
        assert F.softmax(torch.randn(2, 8), -1).dtype == torch.float32
        assert F.linear(x.float(), torch.randn(3, 8)).dtype == half
        assert torch.is_autocast_enabled("cpu")


def test_without_autocast_nothing_is_cast() -> None:
    with as_on_cuda():
        assert F.layer_norm(torch.randn(2, 8).half(), (8,)).dtype == torch.float16


def test_afterwards_all_is_as_it_was() -> None:
    x = torch.randn(2, 8, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        before = F.softmax(x, -1).dtype
        with as_on_cuda():
            assert F.pad(x, (1, 1), mode="reflect").dtype == torch.bfloat16
        assert F.softmax(x, -1).dtype == before
        assert F.pad(x, (1, 1), mode="reflect").dtype == torch.float32


def test_an_error_inside_leaves_autocast_on() -> None:
    with as_on_cuda(), torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(RuntimeError):
            F.layer_norm(torch.randn(2, 8), (9,))
        assert torch.is_autocast_enabled("cpu")
