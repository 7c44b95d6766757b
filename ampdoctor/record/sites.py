"""Names for modules and parameters.

With `watch(model)` the root is given. Under `ampdoctor run` nobody names it, so the live modules are looked up through
the garbage collector, their roots are those that are nobody's child, and a root is called by the variable that holds
it in the user's frames. The root that the optimizer trains gets no prefix where it is the only one.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ampdoctor.record.frames import variables_of
from ampdoctor.record.groups import parameters_of
from ampdoctor.record.live_objects import live_of_both

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping
    from types import FrameType

_WRAPPER_PARTS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"})
_WRAPPERS_OF_MODULE = ("DistributedDataParallel", "DataParallel")
"""Classes that hold the user's model as `.module`; the path of a wrapped model is that of the bare one."""

_MAX_SCANS = 8
"""A scan of all objects takes 0.1-0.6 s; models are made a few times at most."""


_NOBODY: Any = (lambda: None, ("", ""))
"""What is known of a parameter that was not met yet."""


def parts(module: nn.Module, kind: str) -> dict[str, Any]:
    """Return the `_modules` or `_parameters` of a module: names of the user's own may hide the methods that ask for
    them, and one that is only just being made has none yet."""
    found: dict[str, Any] | None = vars(module).get(kind)
    return {} if found is None else found


def _named_modules(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield what nn.Module.named_modules would."""
    seen: set[int] = set()
    stack = [("", root)]
    while stack:
        name, module = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield name, module
        children = list(parts(module, "_modules").items())
        dot = "." if name else ""
        stack += [(f"{name}{dot}{k}", m) for k, m in reversed(children) if m is not None]


def _parameters(root: nn.Module) -> Iterator[nn.Parameter]:
    for _, module in _named_modules(root):
        yield from (p for p in parts(module, "_parameters").values() if p is not None)


class Sites:
    """Paths of modules and parameters, found when first asked for.

    Args:
        roots: root modules by their prefix ("" for none); None to find them.
    """

    def __init__(self, roots: Mapping[str, nn.Module] | None = None) -> None:
        self._paths: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._parameters: dict[int, tuple[weakref.ref[torch.Tensor], tuple[str, str]]] = {}
        self._roots: list[tuple[weakref.ref[nn.Module], str]] = []
        self._taken: dict[str, weakref.ref[Any]] = {}
        self._scans = 0
        for prefix, root in (roots or {}).items():
            self._add_root(root, prefix)

    def path(self, module: nn.Module) -> str:
        """Return the path of `module`."""
        path = self._paths.get(module)
        if path is None:
            self._discover(module)
            path = self._paths[module]
        return path

    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield the modules seen so far, with their paths."""
        yield from ((path, module) for module, path in list(self._paths.items()))

    def parameter(self, tensor: torch.Tensor, holder: nn.Module | None = None) -> tuple[str, str]:
        """Return (module path, name) of a parameter; one that no module holds goes by its variable.

        `holder` is a module that holds it now: FSDP2 gives modules other parameters for the time of a call.
        """
        known = self._parameters.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        held = {} if holder is None else parts(holder, "_parameters")
        own = next((name for name, parameter in held.items() if parameter is tensor), None)
        if holder is not None and own is not None:
            return self._add_parameter(tensor, self.path(holder), own)
        name = self._free_name(variable_name(tensor) or "parameter")
        self._taken[name] = weakref.ref(tensor)
        return self._add_parameter(tensor, "", name)

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether a module holds the parameter, as far as the modules seen go."""
        known = self._parameters.get(id(tensor))
        return known is not None and known[0]() is tensor

    def names(self, parameters: list[torch.Tensor]) -> list[tuple[str, str]]:
        """Return what `parameter` does of each, once the modules that hold them have been looked for."""
        known = [self._parameters.get(id(p), _NOBODY) for p in parameters]
        if all(entry[0]() is p for entry, p in zip(known, parameters, strict=True)):
            return [name for _, name in known]
        self._scan()
        return [self.parameter(p) for p in parameters]

    def _discover(self, module: nn.Module) -> None:
        # A known model may have got another part since: in its own __init__, or from an adapter.
        self._roots = [(ref, prefix) for ref, prefix in self._roots if ref() is not None]
        for ref, prefix in self._roots:
            if (root := ref()) is not None:
                self._walk(root, prefix)
        if module not in self._paths:
            self._scan()
        if module not in self._paths:
            self._add_root(module, self._free_name(type(module).__name__.lower()))

    def _scan(self) -> None:
        if self._scans >= _MAX_SCANS:
            return
        self._scans += 1
        # One that is only just being made has no children yet, not even none.
        found, optimizers = live_of_both(nn.Module, torch.optim.Optimizer)
        modules = [m for m in found if "_modules" in vars(m)]
        children = {id(child) for module in modules for child in parts(module, "_modules").values()}
        roots = [m for m in modules if id(m) not in children and m not in self._paths]
        trained = {id(p) for o in optimizers for p in parameters_of(o)}
        holders = [
            r for r in roots if any(id(p) in trained if trained else p.requires_grad for p in _parameters(r))
        ]  # fmt: skip
        only = holders[0] if len(holders) == 1 and self._is_free("") else None
        for root in roots:
            name = variable_name(root) or type(root).__name__.lower()
            self._add_root(root, "" if root is only else self._free_name(name))

    def _add_root(self, root: nn.Module, prefix: str) -> None:
        self._taken[prefix] = weakref.ref(root)
        self._roots.append((weakref.ref(root), prefix))
        self._walk(root, prefix)

    def _walk(self, root: nn.Module, prefix: str) -> None:
        wrappers: set[str] = set()
        for name, module in _named_modules(root):
            if type(module).__name__ in _WRAPPERS_OF_MODULE:
                wrappers.add(name)
            path = ".".join(filter(None, (prefix, _unwrapped(name, wrappers))))
            self._paths.setdefault(module, path)
            for parameter_name, parameter in parts(module, "_parameters").items():
                if parameter is not None and not self.knows(parameter):
                    self._add_parameter(parameter, path, parameter_name)

    def _add_parameter(self, tensor: torch.Tensor, path: str, name: str) -> tuple[str, str]:
        self._parameters[id(tensor)] = (weakref.ref(tensor), (path, name))
        return path, name

    def _is_free(self, name: str) -> bool:
        """Whether nobody alive has the name: a module that is made anew in each forward keeps its own."""
        holder = self._taken.get(name)
        return holder is None or holder() is None

    def _free_name(self, name: str) -> str:
        candidate, number = name, 1
        while not self._is_free(candidate):
            number += 1
            candidate = f"{name}_{number}"
        return candidate


def _unwrapped(name: str, wrappers: Container[str] = ()) -> str:
    """Return the path that a module would have without its wrappers; `wrappers` are names of those with a `.module`."""
    parts = name.split(".")
    above = (".".join(parts[:depth]) for depth in range(len(parts)))
    return ".".join(
        part
        for part, parent in zip(parts, above, strict=True)
        if part not in _WRAPPER_PARTS and not (part == "module" and parent in wrappers)
    )


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
            yield variables_of(frame)
            if frame.f_back is None or frame.f_code.co_name == "<module>":
                yield dict(frame.f_globals)
        frame = frame.f_back
