"""What a plan is made of: a model that is built anew for each step, and batches for it."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.planning.any_value import AnyValue
from ampdoctor.record.planning.failures import told
from ampdoctor.record.planning.hub import configured, is_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

_SHAPE = "give module:factory, file.py:factory, or the path of a Hugging Face config.json"

_BATCH = "return (module, batch), where batch(size) returns the module's arguments: a tensor, a tuple or a dict"

_CONVERTED = frozenset({torch.float32, torch.float16, torch.bfloat16})


@dataclass
class Target:
    """A model to plan for.

    Attributes:
        name: what messages call it.
        factory: makes a module, or a module and a function from a number of samples to a batch.
        sequence: tokens per sample, where the plan chose them.
    """

    name: str
    factory: Callable[[], Any]
    sequence: int | None = None
    _make: Callable[[int], Any] | None = None
    _made: WeakSet[nn.Module] = field(default_factory=WeakSet)

    def model(self, dtype: torch.dtype) -> nn.Module:
        """Return the model, on fake tensors, its floating-point numbers in `dtype`."""
        with told(
            f"building {self.name}", hint="it is called without arguments, on fake tensors, which have no values"
        ):
            with AnyValue():
                made = self.factory()
            model, self._make = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
            if not isinstance(model, nn.Module):
                raise AmpDoctorError(
                    f"{self.name} returns {type(model).__name__}, which is no torch.nn.Module", hint=_BATCH
                )
            if not callable(self._make):
                raise AmpDoctorError(f"{self.name} says nothing of its batches", hint=_BATCH)
            if model in self._made:
                raise AmpDoctorError(f"{self.name} returns the same module again", hint="build it in the factory, anew")
            self._made.add(model)
            _make_fake(model, dtype)
            return model.train()

    def batch(self, size: int) -> Any:
        """Return `size` samples for the model that was made last."""
        with told(f"the batch of {self.name}"):
            return None if self._make is None else self._make(size)


def load_target(text: str, sequence: int | None = None) -> Target:
    """Return what `text` names.

    Args:
        text: `module:factory`, `file.py:factory`, or the path of a Hugging Face config or of its folder.
        sequence: tokens per sample of a model that is made from a config; by default as many as it takes, up to 2048.

    Raises:
        AmpDoctorError: there is no such thing.
    """
    if is_config(text):
        factory, tokens = configured(Path(text), sequence)
        return Target(text, factory, tokens)
    where, _, attribute = text.rpartition(":")
    if not where or not attribute:
        raise AmpDoctorError(f"{text!r} is no model that can be planned", hint=_SHAPE)
    if sequence is not None:
        raise AmpDoctorError(
            "--sequence goes with a Hugging Face config", hint="let the factory's batch say how long it is"
        )
    module = _from_file(Path(where)) if where.endswith(".py") else _from_name(where)
    found: Any = getattr(module, attribute, None)
    if not callable(found):
        there = sorted(n for n, v in vars(module).items() if callable(v) and not n.startswith("_") and _own(v, module))
        raise AmpDoctorError(
            f"{where} has no function {attribute!r}", hint=f"it has {', '.join(there)}" if there else _SHAPE
        )
    return Target(text, found)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise AmpDoctorError(f"there is no file {path}", hint=f"paths are taken from {Path.cwd()}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise AmpDoctorError(f"{path} can't be imported", hint=_SHAPE)
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles look their module up.
    sys.modules.setdefault(path.stem, module)
    with _on_path(path.resolve().parent), told(f"importing {path}"):
        spec.loader.exec_module(module)
    return module


def _from_name(name: str) -> ModuleType:
    with _on_path(Path.cwd()):
        try:
            found = importlib.util.find_spec(name) is not None
        except (ImportError, ValueError, AttributeError):
            found = False
        if not found:
            raise AmpDoctorError(
                f"there is no module {name}", hint=f"is it installed for this python, or in {Path.cwd()}?"
            )
        with told(f"importing {name}"):
            return importlib.import_module(name)


@contextlib.contextmanager
def _on_path(folder: Path) -> Iterator[None]:
    """While it lasts, modules are found in a folder first, as they are where a script of it runs."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


def _own(value: Any, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def _make_fake(model: nn.Module, dtype: torch.dtype) -> None:
    """Replace parameters and buffers by fake ones in `dtype`: some may have been made before tensors were fake, and
    `Module.to` doesn't know how to replace fake ones."""
    mode: Any = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    known: dict[int, Any] = {}

    def fake(tensor: torch.Tensor) -> Any:
        if not isinstance(tensor, FakeTensor):
            plain = mode.from_tensor(tensor.detach())
        elif tensor.fake_mode is mode:
            plain = tensor.detach()
        else:  # a part that the factory did not make anew
            plain = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        plain = plain.to(dtype) if plain.dtype in _CONVERTED else plain
        return nn.Parameter(plain, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else plain

    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    held[name] = (
                        known[id(tensor)] if id(tensor) in known else known.setdefault(id(tensor), fake(tensor))
                    )
