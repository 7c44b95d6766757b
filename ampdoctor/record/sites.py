"""Names for modules and parameters.

With `watch(model)` the root is given. Under `ampdoctor run` nobody names it, so the live modules are looked up through
the garbage collector, their roots are those that are nobody's child, and a root is called by the variable that holds
it in the user's frames. The root that the optimizer trains gets no prefix where it is the only one.
"""

from __future__ import annotations

import gc
import sys
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import FrameType

_T = TypeVar("_T")

_WRAPPER_PARTS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
_WRAPPERS_OF_MODULE = ("DistributedDataParallel", "DataParallel")
"""Classes that hold the user's model as `.module`; the path of a wrapped model is that of the bare one."""

_MAX_SCANS = 8
"""A scan of all objects takes 0.1-0.6 s; models are made a few times at most."""


def live_instances(kind: type[_T]) -> list[_T]:
    """Return the live objects of `kind`; by `type`, because `isinstance` wakes up lazy proxies."""
    return [o for o in gc.get_objects() if issubclass(type(o), kind)]


class Sites:
    """Paths of modules and parameters, found when first asked for.

    Args:
        roots: root modules by their prefix ("" for none); None to find them.
    """

    def __init__(self, roots: Mapping[str, nn.Module] | None = None) -> None:
        self._paths: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._parameters: dict[int, tuple[weakref.ref[torch.Tensor], str, str]] = {}
        self._taken: set[str] = set()
        self._scans = 0
        for prefix, root in (roots or {}).items():
            self._add_root(root, prefix)

    def path(self, module: nn.Module) -> str:
        """Return the path of `module`."""
        if module not in self._paths:
            self._discover(module)
        return self._paths[module]

    def parameter(self, tensor: torch.Tensor) -> tuple[str, str]:
        """Return (module path, name) of a parameter; one that no module holds goes by its variable."""
        known = self._parameters.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1], known[2]
        return self._add_parameter(
            tensor, "", self._free_name(variable_name(tensor) or "parameter")
        )

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether a module holds the parameter, as far as the modules seen go."""
        known = self._parameters.get(id(tensor))
        return known is not None and known[0]() is tensor

    def look_up(self, parameters: Iterable[torch.Tensor]) -> None:
        """Find the modules that hold `parameters`, so that these go by their modules."""
        if any(not self.knows(p) for p in parameters):
            self._scan()

    def _discover(self, module: nn.Module) -> None:
        self._scan()
        if module not in self._paths:
            self._add_root(module, self._free_name(type(module).__name__.lower()))

    def _scan(self) -> None:
        if self._scans >= _MAX_SCANS:
            return
        self._scans += 1
        modules = live_instances(nn.Module)
        children = {id(child) for module in modules for child in module._modules.values()}
        roots = [m for m in modules if id(m) not in children and m not in self._paths]
        trained = {
            id(p) for o in live_instances(torch.optim.Optimizer) for g in o.param_groups for p in g["params"]
        }  # fmt: skip
        holders = [r for r in roots if any(id(p) in trained for p in r.parameters())]
        only = holders[0] if len(holders) == 1 and "" not in self._taken else None
        for root in roots:
            name = variable_name(root) or type(root).__name__.lower()
            self._add_root(root, "" if root is only else self._free_name(name))

    def _add_root(self, root: nn.Module, prefix: str) -> None:
        self._taken.add(prefix)
        inside_wrapper = type(root).__name__ in _WRAPPERS_OF_MODULE
        for name, module in root.named_modules():
            path = ".".join(filter(None, (prefix, _unwrapped(name, inside_wrapper))))
            self._paths.setdefault(module, path)
            for parameter_name, parameter in module._parameters.items():
                if parameter is not None and not self.knows(parameter):
                    self._add_parameter(parameter, path, parameter_name)

    def _add_parameter(self, tensor: torch.Tensor, path: str, name: str) -> tuple[str, str]:
        self._parameters[id(tensor)] = (weakref.ref(tensor), path, name)
        return path, name

    def _free_name(self, name: str) -> str:
        candidate, number = name, 1
        while candidate in self._taken:
            number += 1
            candidate = f"{name}_{number}"
        self._taken.add(candidate)
        return candidate


def _unwrapped(name: str, inside_wrapper: bool) -> str:
    parts = [part for part in name.split(".") if part not in _WRAPPER_PARTS]
    if inside_wrapper and parts and parts[0] == "module":
        parts = parts[1:]
    return ".".join(parts)


def variable_name(target: object) -> str | None:
    """Return the name of a variable in the calling frames, innermost first, whose value is `target`."""
    for scope in _user_scopes():
        for name, value in scope.items():
            if value is target and not name.startswith("_") and name not in {"self", "module"}:
                return name
    return None


def _user_scopes() -> Iterator[dict[str, Any]]:
    frame: FrameType | None = sys._getframe(1)
    torch_package, own_package = torch.__name__ + ".", __name__.partition(".")[0] + "."
    while frame is not None:
        module = str(frame.f_globals.get("__name__", "")) + "."
        if not module.startswith((torch_package, own_package)):
            # A copy: the user's own thread may be adding variables to it.
            yield dict(frame.f_locals)
            if frame.f_back is None or frame.f_code.co_name == "<module>":
                yield dict(frame.f_globals)
        frame = frame.f_back
