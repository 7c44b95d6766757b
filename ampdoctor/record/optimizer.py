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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ampdoctor.record.sites import Sites
    from ampdoctor.record.tensor_log import TensorLog

_WORKING_COPIES = 8
"""FP32 copies of one parameter that taking an update's statistics may hold at once, in halves."""

_WIDE = frozenset({torch.float32, torch.float64, torch.complex64, torch.complex128})
"""dtypes of weights whose updates are taken all at once, and as they are."""

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
        self._before: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
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
        self._sites.look_up(parameters)
        scale = self._tensors.log.scale if scaled else None
        gradients = []
        for parameter in parameters:
            if parameter.grad is not None:
                site = self._site(parameter, "weight_grad")
                added = self.sums.compared(parameter)
                if added is None:
                    gradients.append((parameter.grad, site))
                else:
                    self._tensors.add(parameter.grad, site, scale=scale, extra=added)
        self._tensors.add_all(gradients, scale=scale)
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
        self._sites.look_up(parameters)
        unseen = {id(p): p for p in parameters if self._tensors.known(p) is None}  # some list one twice
        self._tensors.add_all(((p, self._site(p, "weight")) for p in unseen.values()), remember=True)
        states = {
            (id(optimizer), id(p), name): value
            for p in parameters
            if _holds_half(state := state_of(optimizer, p))
            for name, value in half_states(local_part(p), _held(state))
        }
        # The copy, and what `after_step` needs for the largest of them at a time.
        held = [local_part(p) for p in parameters]
        working = sorted(held, key=torch.numel)[-1:] * _WORKING_COPIES
        if fits([*held, *states.values(), *working]):
            self._before[id(optimizer)] = _copies(parameters)
            self._states |= {key: value.detach().clone() for key, value in states.items()}

    def after_step(self, optimizer: torch.optim.Optimizer, *, closure: bool = False) -> None:
        """Record updates and optimizer state; what a `closure` has made no gradient for was not stepped."""
        tensors = self._tensors
        if tensors is None:
            return
        groups = {id(p): group for group in groups_of(optimizer) for p in group["params"]}
        wide: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        states: list[tuple[torch.Tensor, tuple[str, str, str]]] = []
        for parameter, before in self._before.pop(id(optimizer), []):
            if closure and parameter.grad is None:
                continue
            group, after = groups.get(id(parameter)), local_part(parameter)
            # Inside `step` others may have taken its place, or its values may lie elsewhere.
            if group is None or before.shape != after.shape or before.device != after.device:
                continue
            state = state_of(optimizer, parameter)
            if parameter.dtype not in _WIDE:
                self._narrow_update(tensors, parameter, before, group, _held(state))
            else:
                wide.append((parameter, after, before))
            states += self._whole_states(tensors, optimizer, parameter, state)
        if wide:
            with torch.no_grad():
                # The other way round, where the copies lie: of an update only magnitudes are kept.
                torch._foreach_sub_([before for *_, before in wide], [after.detach() for _, after, _ in wide])
        tensors.add_all(
            ((before, self._site(p, "update")) for p, _, before in wide), parts=[part_of(p) for p, *_ in wide]
        )
        tensors.add_all(states)

    def _whole_states(
        self, tensors: TensorLog, optimizer: torch.optim.Optimizer, parameter: torch.Tensor, state: dict[str, Any]
    ) -> Iterator[tuple[torch.Tensor, tuple[str, str, str]]]:
        """Yield the state with its sites, but for what is half, which is measured with how it has moved."""
        path, name = self._sites.parameter(parameter)
        large = [(k, v) for k, v in state.items() if isinstance(v, torch.Tensor) and v.numel() > 1]
        half = {key for key, _ in half_states(local_part(parameter), _held(state))} if _holds_half(state) else ()
        for key, value in large:
            site = (path, "optimizer_state", f"{name}.{key}")
            if key in half:
                earlier = self._states.pop((id(optimizer), id(parameter), key), None)
                tensors.add(value, site, extra=_moved(earlier, local_part(value), _gradient(parameter)))
            else:
                yield value, site

    def _narrow_update(
        self,
        tensors: TensorLog,
        parameter: torch.Tensor,
        before: torch.Tensor,
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
        site = self._site(parameter, "update")
        tensors.add(update, site, extra=extra, dtype=parameter.dtype, part=part_of(parameter))

    def _site(self, parameter: torch.Tensor, role: str) -> tuple[str, str, str]:
        path, name = self._sites.parameter(parameter)
        return path, role, name


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
    return any(isinstance(value, torch.Tensor) and value.dtype in HALVES for value in state.values())


def _held(state: dict[str, Any]) -> dict[str, Any]:
    """Return an optimizer's state with what this rank holds in place of tensors that are spread."""
    return {k: local_part(v) if isinstance(v, torch.Tensor) else v for k, v in state.items()}


def _copies(parameters: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the parameters with a copy of what this rank holds of each; those of usual dtypes are copied at once, as
    there may be many small ones."""
    usual = [p for p in parameters if p.dtype in _WIDE or p.dtype in HALVES]
    others = [p for p in parameters if p.dtype not in _WIDE and p.dtype not in HALVES]
    with torch.no_grad():
        copies = list(torch._foreach_mul([local_part(p).detach() for p in usual], 1.0)) if usual else []
        copies += [local_part(p).detach().clone() for p in others]
    return list(zip([*usual, *others], copies, strict=True))
