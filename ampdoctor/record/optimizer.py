"""Optimizers: their names and groups, and on examined steps the gradients, updates and state of what they train."""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.gradient_sums import GradientSums
from ampdoctor.record.groups import groups_of, parameters_of, state_of
from ampdoctor.record.half_state import HALF_STATE_COLUMNS, half_state_counts, half_states
from ampdoctor.record.headroom import fits
from ampdoctor.record.live_objects import live_instances
from ampdoctor.record.lost_updates import LOST_UPDATE_COLUMNS, lost_update_counts, understood
from ampdoctor.record.shards import local_part, part_of
from ampdoctor.record.stats import measurable
from ampdoctor.record.tensors import HALVES
from ampdoctor.record.weight_copies import WIDE, WeightCopies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ampdoctor.record.sites import Sites
    from ampdoctor.record.tensor_log import TensorLog

_WORKING_COPIES = 8
"""FP32 copies of one parameter that taking an update's statistics may hold at once, in halves."""

_HOOKS = "_optimizer_step_pre_hooks"
"""What torch's __init__ makes. Wrappers of frameworks are of an optimizer's class and lack it: they tell no steps."""


class OptimizerNames:
    """Gives each optimizer a name by order of appearance, and knows whose a parameter is."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[weakref.ref[torch.optim.Optimizer], str]] = {}
        self._owners: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}
        self._sizes: dict[str, int] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return sum(ref() is not None for ref, _ in self._names.values())

    def find(self) -> None:
        """Name every live optimizer."""
        for optimizer in live_instances(torch.optim.Optimizer):
            if _HOOKS in vars(optimizer) and groups_of(optimizer):
                self.name(optimizer)

    def name(self, optimizer: torch.optim.Optimizer) -> str:
        """Return the optimizer's name; a framework's wrapper goes by that of the optimizer which it steps."""
        known = self._names.get(id(optimizer))
        if known is None or known[0]() is not optimizer:
            inner = _wrapped(optimizer)
            if inner is not None:
                return self.name(inner)
            known = (weakref.ref(optimizer), f"optimizer{next(self._numbers)}")
            self._names[id(optimizer)] = known
        self._take_parameters(optimizer, known[1])
        return known[1]

    def owner(self, parameter: torch.Tensor) -> str | None:
        """Return the name of the optimizer that trains `parameter`."""
        known = self._owners.get(id(parameter))
        return known[1] if known is not None and known[0]() is parameter else None

    def owners(self, parameters: Iterable[torch.Tensor]) -> list[str]:
        """Return the names of the optimizers that train any of the parameters."""
        return sorted({name for p in parameters if (name := self.owner(p)) is not None})

    def _take_parameters(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        """Note whose the parameters are, again when groups were added."""
        size = sum(len(group["params"]) for group in groups_of(optimizer))
        if self._sizes.get(name) != size:
            self._sizes[name] = size
            self._owners.update((id(p), (weakref.ref(p), name)) for p in parameters_of(optimizer))

    def live(self) -> Iterator[torch.optim.Optimizer]:
        """Yield the live optimizers."""
        for ref, _ in self._names.values():
            if (optimizer := ref()) is not None:
                yield optimizer


def _wrapped(optimizer: Any) -> torch.optim.Optimizer | None:
    """Return the optimizer that `optimizer` stands before; None where it is one itself."""
    kind = torch.optim.Optimizer
    wraps = issubclass(type(optimizer), kind) and _HOOKS not in vars(optimizer)
    return next((one for one in vars(optimizer).values() if issubclass(type(one), kind)), None) if wraps else None


class WeightExaminer:
    """Measures what an optimizer step reads and writes, once per optimizer and examined step.

    Attributes:
        sums: half gradients that several backward passes add up to.
    """

    def __init__(self, sites: Sites) -> None:
        self.sums = GradientSums()
        self._sites = sites
        self._tensors: TensorLog | None = None
        self._observer: Callable[[Iterable[torch.Tensor]], None] | None = None
        self._graded: set[int] = set()
        self._before: dict[int, WeightCopies] = {}
        self._states: dict[tuple[int, int, str], torch.Tensor] = {}

    def arm(self, tensors: TensorLog | None, observer: Callable[[Iterable[torch.Tensor]], None] | None = None) -> None:
        """Measure for `tensors` from now on; None for a step that is not examined.

        `observer` is told of the parameters whose gradients are complete, before any optimizer touches them.
        """
        self._tensors, self._observer = tensors, observer
        self.sums.clear()
        self._graded.clear()
        self._before.clear()
        self._states.clear()

    def observe(self, observer: Callable[[Iterable[torch.Tensor]], None]) -> None:
        """Tell `observer` too, from the middle of a step on."""
        self._observer = observer

    def gradients(self, optimizer: torch.optim.Optimizer, *, scaled: bool) -> None:
        """Record the weight gradients as accumulated; a second call in the same step does nothing."""
        if self._tensors is None or id(optimizer) in self._graded:
            return
        self._graded.add(id(optimizer))
        self.gradients_of(list(parameters_of(optimizer)), scaled=scaled)

    def gradients_of(self, parameters: list[torch.Tensor], *, scaled: bool) -> None:
        """Record the weight gradients of `parameters`."""
        if self._tensors is None:
            return
        scale = self._tensors.log.scale if scaled else None
        gradients, names = [], []
        for parameter, name in zip(parameters, self._sites.names(parameters), strict=True):
            gradient = parameter.grad
            if gradient is not None:
                added = self.sums.compared(parameter)
                if added is None:
                    gradients.append(gradient)
                    names.append(name)
                else:
                    site = (name[0], "weight_grad", name[1])
                    self._tensors.add(gradient, site, scale=scale, extra=added)
        self._tensors.add_all("weight_grad", gradients, names, scale=scale)
        if self._observer is not None:
            self._observer(parameters)

    def before_step(self, optimizer: torch.optim.Optimizer, *, closure: bool = False) -> None:
        """Record the weights and keep a copy of them for `after_step`, where memory allows.

        A `closure` makes the gradients only within the step.
        """
        if self._tensors is None:
            return
        graded = (p for p in parameters_of(optimizer) if p.grad is not None or (closure and p.requires_grad))
        parameters = [p for p in graded if measurable(local_part(p))]
        names = self._sites.names(parameters)
        known = self._tensors.known
        unseen = {id(p): (p, n) for p, n in zip(parameters, names, strict=True) if known(p) is None}  # may come twice
        fresh = list(unseen.values())
        self._tensors.add_all("weight", [p for p, _ in fresh], [name for _, name in fresh], remember=True)
        states = {
            (id(optimizer), id(p), name): value
            for p in parameters
            if _holds_half(state := state_of(optimizer, p))
            for name, value in half_states(local_part(p), _held(state))
        }
        # The copy, and what `after_step` needs for the largest of them at a time.
        held = [local_part(p) for p in parameters]
        working = [max(held, key=torch.numel)] * _WORKING_COPIES if held else []
        if fits([*held, *states.values(), *working]):
            self._before[id(optimizer)] = WeightCopies(parameters, names, in_one=self._tensors.plainly)
            self._states |= {key: value.detach().clone() for key, value in states.items()}

    def after_step(self, optimizer: torch.optim.Optimizer, *, closure: bool = False) -> None:
        """Record updates and optimizer state; what a `closure` has made no gradient for was not stepped."""
        tensors, copies = self._tensors, self._before.pop(id(optimizer), None)
        if tensors is None or copies is None:
            return
        stepped = copies.stepped(optimizer, closure=closure)
        states: list[torch.Tensor] = []
        names: list[tuple[str, str]] = []
        for parameter, before, name, group in stepped:
            state = state_of(optimizer, parameter)
            if before is not None and group is not None and parameter.dtype not in WIDE:
                self._narrow_update(tensors, parameter, before, name, group, _held(state))
            for key, value in state.items():
                if not isinstance(value, torch.Tensor) or value.numel() <= 1:
                    continue
                slot = f"{name[1]}.{key}"
                if value.dtype in HALVES and self._half_state(tensors, optimizer, parameter, key, (name[0], slot)):
                    continue
                states.append(value)
                names.append((name[0], slot))
        copies.record_wide(tensors, stepped)
        tensors.add_all("optimizer_state", states, names)

    def _half_state(
        self,
        tensors: TensorLog,
        optimizer: torch.optim.Optimizer,
        parameter: torch.Tensor,
        key: Any,
        name: tuple[str, str],
    ) -> bool:
        """Record a state that is half, with how it has moved; False where it has not an element for each weight."""
        state = state_of(optimizer, parameter)
        if key not in dict(half_states(local_part(parameter), _held(state))):
            return False
        earlier = self._states.pop((id(optimizer), id(parameter), key), None)
        extra = _moved(earlier, local_part(state[key]), _gradient(parameter))
        tensors.add(state[key], (name[0], "optimizer_state", name[1]), extra=extra)
        return True

    def _narrow_update(
        self,
        tensors: TensorLog,
        parameter: torch.Tensor,
        before: torch.Tensor,
        name: tuple[str, str],
        group: dict[str, Any],
        state: dict[str, Any],
    ) -> None:
        gradient, extra, after = _gradient(parameter), None, local_part(parameter).detach()
        with torch.no_grad():
            update = after.float() - before.float()
            followed = parameter.dtype in HALVES and understood(before, group, state)
            if followed and gradient is not None and measurable(gradient):
                counts = lost_update_counts(before, after, gradient, group, state)
                extra = (counts, LOST_UPDATE_COLUMNS)
        site = (name[0], "update", name[1])
        tensors.add(update, site, extra=extra, dtype=parameter.dtype, part=part_of(parameter))


def _moved(
    before: torch.Tensor | None, state: torch.Tensor, gradient: torch.Tensor | None
) -> tuple[torch.Tensor, tuple[str, ...]] | None:
    """Return the numbers of HALF_STATE_COLUMNS; None without a gradient to compare with."""
    if gradient is None or not measurable(gradient) or gradient.is_complex():
        return None
    if gradient.shape != state.shape or gradient.device != state.device:
        return None
    if before is not None and (before.shape, before.device) != (state.shape, state.device):
        return None
    with torch.no_grad():
        return half_state_counts(before, state, gradient), HALF_STATE_COLUMNS


def _gradient(parameter: torch.Tensor) -> torch.Tensor | None:
    """Return what this rank holds of the gradient."""
    return None if parameter.grad is None else local_part(parameter.grad)


def _holds_half(state: dict[Any, Any]) -> bool:
    """Whether there is anything in an optimizer's state to look at closely: in most there is nothing in half."""
    for value in state.values():  # noqa: SIM110 - there may be hundreds of states, and each generator costs
        if isinstance(value, torch.Tensor) and value.dtype in HALVES:
            return True
    return False


def _held(state: dict[str, Any]) -> dict[str, Any]:
    """Return an optimizer's state with what this rank holds in place of tensors that are spread."""
    return {k: local_part(v) if isinstance(v, torch.Tensor) else v for k, v in state.items()}
