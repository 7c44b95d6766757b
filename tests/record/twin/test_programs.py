"""Random programs of a few operations on a few tensors: the twin is what the program computes in FP32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ampdoctor.record.twin.counterfactual import Counterfactual
from tests.record.twin.beside import alone, beside, half, same

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIDE = 6
T = torch.Tensor


@dataclass(frozen=True)
class Instruction:
    """One line of a program: an operation on tensors by number, and numbers of its own."""

    name: str
    first: int
    second: int
    number: int

    def __repr__(self) -> str:
        return f"{self.name}({self.first}, {self.second}, {self.number})"


def square(t: T) -> T:
    """Return a tensor of SIDE by SIDE that shares as much of its memory as can be."""
    return t if t.shape == (SIDE, SIDE) else t.expand(SIDE, SIDE)


def imaginary(t: T) -> T:
    """Return a tensor of complex numbers made of pairs of numbers."""
    return torch.view_as_complex(t.float().contiguous().view(-1, 3, 2))


# A result joins the tensors; operations in place change one that others may be views of.
# Each keeps numbers near 1, so that they stay finite in every format.
RESULTS: dict[str, Callable[[T, T, int], T]] = {
    "matmul": lambda a, b, n: (a @ b) * 0.2,
    "add": lambda a, b, n: (a + b * 0.5).tanh(),
    "mul": lambda a, b, n: a * b.tanh(),
    "transpose": lambda a, b, n: a.t(),
    "rows": lambda a, b, n: a[n % SIDE],
    "column": lambda a, b, n: a[:, n % SIDE : n % SIDE + 1],
    "flip": lambda a, b, n: a.flip(n % 2),
    "reshape": lambda a, b, n: a.reshape(3, -1).reshape(SIDE, SIDE),
    "strided": lambda a, b, n: a.contiguous().as_strided((SIDE, SIDE), (n % 5, 1), n % 3),
    "softmax": lambda a, b, n: a.softmax(n % 2),
    "sum": lambda a, b, n: (a.sum(n % 2, keepdim=True) * 0.1).tanh(),
    "cat": lambda a, b, n: torch.cat([a[:3], b[3:]]),
    "where": lambda a, b, n: torch.where(torch.eye(SIDE, dtype=torch.bool), a, b),
    "to_float": lambda a, b, n: a.to(torch.float32, copy=True),
    "to_double": lambda a, b, n: a.to(torch.float64, copy=True),
    "clone": lambda a, b, n: a.clone(),
    "empty_like": lambda a, b, n: torch.empty_like(a).copy_(b),
    "split": lambda a, b, n: torch.stack(a.unbind(n % 2)[::-1]),
    "gather": lambda a, b, n: a.gather(1, torch.arange(SIDE).roll(n).expand(SIDE, -1)),
    "detach": lambda a, b, n: a.detach(),
    "gelu": lambda a, b, n: torch.nn.functional.gelu(a),
    "layer_norm": lambda a, b, n: torch.nn.functional.layer_norm(a, (SIDE,)),
    "foreach": lambda a, b, n: torch._foreach_add([a, b], [b, a])[n % 2].tanh(),
    "max": lambda a, b, n: a.max(n % 2, keepdim=True).values,
    "complex": lambda a, b, n: imaginary(a).conj().imag.reshape(-1, 1)[:SIDE] * 1,
}  # fmt: skip
IN_PLACE: dict[str, Callable[[T, T, int], Any]] = {
    "add_": lambda a, b, n: a.mul_(0.5).add_(b.tanh(), alpha=0.5),
    "mul_": lambda a, b, n: a.mul_(b.tanh()),
    "copy_": lambda a, b, n: a.copy_(b),
    "tanh_": lambda a, b, n: a.tanh_(),
    "row_": lambda a, b, n: a[n % SIDE].copy_(b[0]),
    "columns_": lambda a, b, n: a[:, ::2].mul_(0.5),
    "transposed_": lambda a, b, n: a.t().add_(0.25),
    "zero_": lambda a, b, n: a[0].zero_(),
    "fill_": lambda a, b, n: a[:, n % SIDE].fill_(0.1 * (n % 10)),
    "masked_": lambda a, b, n: a.masked_fill_(torch.eye(SIDE, dtype=torch.bool), 0.3),
    "index_": lambda a, b, n: a.index_put_((torch.tensor([0, n % SIDE]),), b[:2]),
    "out": lambda a, b, n: torch.mul(b, 0.5, out=a),
    "foreach_": lambda a, b, n: torch._foreach_mul_([a], 0.5),
}


def program(instructions: Sequence[Instruction], narrow: torch.dtype) -> Callable[..., list[T]]:
    """Return the function that runs the instructions; `narrow` is what half is."""

    def run(*inputs: T) -> list[T]:
        tensors = list(inputs)
        for instruction in instructions:
            a, b = (square(tensors[i % len(tensors)]) for i in (instruction.first, instruction.second))
            if instruction.name == "to_half":
                tensors.append(a.to(narrow, copy=True))  # or it would share memory in one format only
            elif instruction.name in RESULTS:
                # Several formats in one operation would be promoted in other ways in another world.
                tensors.append(RESULTS[instruction.name](a, b.to(a.dtype), instruction.number))
            elif _can_be_written(a):
                other = b.to(a.dtype, copy=True)  # memory of its own: what overlaps is undefined
                IN_PLACE[instruction.name](a, other, instruction.number)
        return tensors

    return run


def _can_be_written(tensor: T) -> bool:
    return all(stride >= SIDE or stride == 1 for stride in tensor.stride()) and (len(set(tensor.stride())) == 2)


names = st.sampled_from(["to_half", *RESULTS, *IN_PLACE])
instructions = st.builds(Instruction, names, st.integers(0, 20), st.integers(0, 20), st.integers(0, 30))


@settings(deadline=None, max_examples=150)
@given(st.lists(instructions, min_size=1, max_size=14), st.integers(0, 2), st.booleans())
def test_a_program_s_twin_is_the_program_in_another_format(
    lines: list[Instruction], seed: int, from_bf16: bool
) -> None:
    dtype, other = torch.float16, torch.bfloat16
    if from_bf16:
        dtype, other = other, dtype
    inputs = [half(SIDE, SIDE, seed=seed).tanh().to(dtype), half(SIDE, SIDE, seed=seed + 9).float()]
    name = "fp16" if from_bf16 else "bf16"
    for counterfactual, narrow in ((Counterfactual("fp32"), torch.float32), (Counterfactual(name), other)):  # fmt: skip
        found = beside(program(lines, dtype), inputs, counterfactual)
        assert found.errors == []
        assert dict(found.twin.not_twinned) == {}
        assert same(found.results, alone(program(lines, dtype), inputs))
        as_if = [inputs[0].to(narrow), inputs[1]]
        assert same(found.values(), alone(program(lines, narrow), as_if))
