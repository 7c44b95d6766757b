"""Which ops a step runs, and where two settings run different ones."""

from __future__ import annotations

import contextlib
from collections import Counter
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from tests.record.twin.training import Observer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.record.twin.setting import Setting
    from tests.record.twin.training import Case

LEFT_OUT = ("aten._to_copy.default", "aten.detach.default")


class OpSequence(TorchDispatchMode, Observer):
    """The names of the ops between zero_grad and the optimizer, casts and autograd's own detach left out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        if str(func) not in LEFT_OUT:
            self.names.append(str(func).removeprefix("aten.").removesuffix(".default"))
        return func(*args, **(kwargs or {}))

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        with self:
            yield

    def during(self) -> contextlib.AbstractContextManager[object]:
        return self._entered()


def op_sequence(case: Case, setting: Setting, seed: int = 0) -> list[str]:
    """Return the ops of the first step of `case` in `setting`."""
    training, ops = case.start(seed), OpSequence()
    training.run_step(setting, ops)
    return ops.names


def differing_ops(case: Case, one: Setting, other: Setting) -> Counter[tuple[str, str]]:
    """Return the stretches of ops where the two settings part, `one`'s and `other`'s, with their number."""
    a, b = op_sequence(case, one), op_sequence(case, other)
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    return Counter((" ".join(a[i:j]), " ".join(b[k:m])) for tag, i, j, k, m in matcher.get_opcodes() if tag != "equal")
