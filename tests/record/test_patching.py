"""Functions are wrapped, and unwrapped, wherever they are."""

from __future__ import annotations

import functools
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ampdoctor.record.patching import Patches

if TYPE_CHECKING:
    from collections.abc import Iterator


def _double(x: int, *, plus: int = 0) -> int:
    """Doubles."""
    if x < 0:
        raise ValueError("negative")
    return 2 * x + plus


class _Watch:
    """Keeps what before and after were told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def before(self, *args: Any, **kwargs: Any) -> str:
        self.told.append((args, kwargs))
        return "token"

    def after(self, token: Any, result: Any, error: BaseException | None) -> None:
        self.told.append((token, result, type(error).__name__))


def test_before_and_after() -> None:
    owner, watch, patches = SimpleNamespace(double=_double), _Watch(), Patches()
    patches.around(owner, "double", watch.before, watch.after)
    assert owner.double(3, plus=1) == 7
    with pytest.raises(ValueError, match="negative"):
        owner.double(-1)
    assert watch.told == [
        ((3,), {"plus": 1}), ("token", 7, "NoneType"), ((-1,), {}), ("token", None, "ValueError"),
    ]  # fmt: skip
    assert (owner.double.__name__, owner.double.__doc__) == ("_double", "Doubles.")
    patches.undo()
    assert owner.double is _double


def test_a_wrapper_that_somebody_has_wrapped_stays() -> None:
    owner, watch, patches = SimpleNamespace(double=_double), _Watch(), Patches()
    patches.around(owner, "double", watch.before, watch.after)
    theirs = functools.partial(owner.double)
    owner.double = theirs
    patches.undo()
    assert owner.double is theirs
    assert owner.double(2) == 4


def test_wrappers_come_off_in_reverse() -> None:
    owner, watch, patches = SimpleNamespace(double=_double), _Watch(), Patches()
    for _ in range(2):
        patches.around(owner, "double", watch.before, watch.after)
    assert owner.double(1) == 2
    assert len(watch.told) == 4
    patches.undo()
    assert owner.double is _double


@pytest.fixture
def importer() -> Iterator[ModuleType]:
    """A module that has imported the function by name, under two names."""
    module = ModuleType("importer_of_double")
    module.__dict__.update(double=_double, alias=_double)
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def test_everywhere(importer: Any) -> None:
    owner, watch, patches = SimpleNamespace(double=_double), _Watch(), Patches()
    patches.around(owner, "double", watch.before, watch.after, everywhere=True)
    assert (importer.double(1), importer.alias(2), owner.double(3)) == (2, 4, 6)
    assert len(watch.told) == 6
    patches.undo()
    assert importer.double is importer.alias is owner.double is _double


def test_a_module_that_answers_strangely_is_let_be(importer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(f"asked for {name}")

    monkeypatch.setitem(sys.modules, "lazy_module", Lazy("lazy_module"))
    monkeypatch.setitem(sys.modules, "no_module", None)
    owner, watch, patches = SimpleNamespace(double=_double), _Watch(), Patches()
    patches.around(owner, "double", watch.before, watch.after, everywhere=True)
    assert importer.double(1) == 2
    patches.undo()
