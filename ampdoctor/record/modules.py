"""Module hooks of an examined step: activations forward, gradients of outputs backward.

The hooks are global ones, so that nothing needs to know the model; they are put in place at a step boundary and taken
off at the next. Only forward hooks are used: `output.register_hook` from inside one leaves every bit of the gradients
as it is, where full backward hooks do not (and break in-place modules).
"""

from __future__ import annotations

from itertools import chain, repeat
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ampdoctor.record.autograd_graph import SITE, note
from ampdoctor.record.buffers import record_buffers
from ampdoctor.record.global_hooks import GlobalHooks
from ampdoctor.record.module_sites import TRAINING, GradientHook, ModuleSite, kind_of_call, module_row, own_parameters
from ampdoctor.record.named_tuples import made
from ampdoctor.record.other_threads import OtherThreads
from ampdoctor.record.quiet import in_backward, traced
from ampdoctor.record.tensor_log import NO_CALL, Context
from ampdoctor.record.tensors import autocast_dtype, tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ampdoctor.record.state import State
    from ampdoctor.record.tensor_log import TensorLog
    from ampdoctor.record.twin.place import Places

    Key = tuple[str, str]
    """The path of a module, and the kind of its call."""

    Fresh = list[tuple[nn.Parameter, tuple[str, str, str]]]
    """Weights that the step has not met before, with their sites."""

_MAX_CALLS = 8
"""Calls of one module recorded in a step: a recurrent cell called a thousand times repeats itself."""


_MOST_CALLS = 50_000
"""Calls of all modules together that are looked at in a step: those after them repeat it, and each costs time."""


_MOST_KNOWN = 10_000
"""Modules that are kept in mind: some programs make new ones in each forward."""


class ModuleHooks:
    """Puts the hooks in place for one step after another.

    Attributes:
        tensors: where the tensors of the step at hand go.
    """

    def __init__(self, state: State, failed: Callable[[BaseException], None]) -> None:
        self._state = state
        self._sites, self._optimizers, self._guard = state.sites, state.optimizers, state.guard
        self._hooks = GlobalHooks(self._before, self._after, state.guarded(failed, claim=False))
        self._described: set[str] = set()
        self._known: dict[int, ModuleSite] = {}
        self.tensors: TensorLog | None = None
        self._calls: dict[tuple[str, str], int] = {}
        self._met = 0
        self._elsewhere = OtherThreads(state)
        self._recorded_before_backward: set[str] = set()
        self._places: Places | None = None
        self._inside: tuple[nn.Module, int] | None = None

    def install(self) -> None:
        """Get ready, without any hook yet."""
        self._hooks.install()

    def remove(self) -> None:
        """Leave everything as it was."""
        self.disarm()
        self._hooks.remove()

    def arm(self, tensors: TensorLog | None, places: Places | None = None) -> None:
        """Record the modules called from now on; `places` is told of each as it begins and ends.

        Without either there is no hook.
        """
        if tensors is None and places is None:
            self.disarm()
            return
        self.tensors, self._places = tensors, places
        self._calls.clear()
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        self._met = 0
        self._recorded_before_backward.clear()
        self._hooks.put()

    def disarm(self) -> None:
        """Take every hook off."""
        self._hooks.take_off()
        self.tensors = self._places = self._inside = None

    def _before(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._inside = None
        if self._is_none_of_ours():
            return
        self._inside = module, get_ident()
        with self._guard:
            site = self._site(module)
            if site is None:
                return
            tensors = self.tensors
            if tensors is not None:
                if self._state.opinions.replays is not None:
                    self._state.opinions.replays.kept.met(module, args)
                self._places = self._state.opinions.first_call(module) or self._places
            if self._places is not None:
                self._places.enter(site.path)
            if tensors is not None and self._wanted(key := (site.path, kind_of_call())):
                self._record_inputs(tensors, module, key, tensors_in(args))

    def _after(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        inside, self._inside = self._inside, None
        # A module that calls no other one has been asked just now.
        asked = inside is not None and inside[0] is module and inside[1] == get_ident()
        if not asked and self._is_none_of_ours():
            if self.tensors is not None:
                self._elsewhere.called(module, output)
            return
        with self._guard:
            site = self._site(module)
            if site is None:
                return
            if self.tensors is not None:
                self._record(self.tensors, module, site, (args, kwargs), output)
            if self._places is not None:
                self._places.leave(site.path)
            self._met += 1
            if self._met >= _MOST_CALLS and self._places is None:
                self._hooks.take_off()

    def _site(self, module: nn.Module) -> ModuleSite | None:
        """Return what is known of the module; None of one that does not count."""
        known = self._known.get(id(module))
        if known is not None and known.module() is module:
            return known
        # DataParallel makes copies for every forward; they have no name, and the originals are not called.
        if isinstance(module, torch.jit.ScriptModule) or "_is_replica" in vars(module):
            return None
        site = self._known[id(module)] = ModuleSite(module, self._sites.path(module))
        return site

    def _record(
        self, tensors: TensorLog, module: nn.Module, site: ModuleSite, given: tuple[Any, ...], output: Any
    ) -> None:
        """Record one call; `given` are its arguments and its named ones."""
        if self._state.opinions.replays is not None:
            self._state.opinions.replays.kept.left(module, given[1], output)
        key = site.path, kind_of_call()
        if self._wanted(key):
            # A global pre-hook is not shown keyword arguments, so those are met here.
            inputs = chain(tensors_in(given[0]), tensors_in(given[1])) if given[1] else tensors_in(given[0])
            sources = self._record_inputs(tensors, module, key, inputs)
            self._record_outputs(tensors, module, site, key, sources, output)
        self._state.blocks.called(site.path)

    def _is_none_of_ours(self) -> bool:
        """Whether the call at hand is no plain call of the training that is followed.

        Autograd's threads make the calls of a recomputation; those are nobody's in particular.
        """
        if torch.compiler.is_compiling() or traced() or self._state.replaying:
            return True
        thread = self._guard.thread
        return not in_backward() and not thread.is_this(claim=torch.is_grad_enabled(), by_module=True)

    def _record_inputs(
        self, tensors: TensorLog, module: nn.Module, key: Key, inputs: Iterable[torch.Tensor]
    ) -> list[int]:
        """Record inputs that no module made, before an in-place module can change them; returns the rows of all."""
        path = key[0]
        if path not in self._described:
            self._describe(tensors, module, path)
        rows = []
        for index, tensor in enumerate(inputs):
            row = tensors.known(tensor)
            if row is None and not isinstance(tensor, nn.Parameter):
                row = tensors.add(tensor, (path, "activation", _slot("in", index)), context=self._context(tensor, key))
            if row is not None:
                rows.append(row)
        return rows

    def _record_outputs(
        self, tensors: TensorLog, module: nn.Module, site: ModuleSite, key: Key, sources: list[int], output: Any
    ) -> None:
        fresh: Fresh = []
        for parameter in own_parameters(module):
            row = tensors.known(parameter)
            if row is None:
                path, name = self._sites.parameter(parameter, module)
                fresh.append((parameter, (path, "weight", name)))
            else:
                sources.append(row)
        if not self._record_usual(tensors, site, key, sources, fresh, output):
            self._record_unusual(tensors, key, sources, fresh, output)
        record_buffers(tensors, module, site.path)
        self._count(key)

    def _record_usual(
        self, tensors: TensorLog, site: ModuleSite, key: Key, sources: list[int], fresh: Fresh, output: Any
    ) -> bool:
        """Record weights not met before and the output with one look; False where that can't be done."""
        if type(output) is not torch.Tensor or tensors.known(output) is not None:
            return False
        context = self._context(output, key)
        met, sites, contexts = [output], [site.output], [context]
        if fresh:
            met, sites = [*(p for p, _ in fresh), output], [*(own for _, own in fresh), site.output]
            contexts = [*repeat(NO_CALL, len(fresh)), context]
        if tensors.add_few(met, sites, contexts, inputs=sources) is None:
            return False
        self._follow_gradient(tensors, output, site.gradient, context)
        return True

    def _record_unusual(self, tensors: TensorLog, key: Key, sources: list[int], fresh: Fresh, output: Any) -> None:
        """Do the same one by one."""
        added = (tensors.add(parameter, own) for parameter, own in fresh)
        sources += [row for row in added if row is not None]
        for index, tensor in enumerate(tensors_in(output)):
            if tensors.known(tensor) is not None:
                continue
            context, slot = self._context(tensor, key), _slot("out", index)
            if tensors.add(tensor, (key[0], "activation", slot), inputs=sources, context=context) is not None:
                self._follow_gradient(tensors, tensor, (key[0], "grad_output", slot), context)

    def _follow_gradient(
        self, tensors: TensorLog, tensor: torch.Tensor, site: tuple[str, str, str], context: Context
    ) -> None:
        node = tensor.grad_fn if tensor.requires_grad else None
        if node is not None:
            note(node, SITE, site[0])
            tensor.register_hook(GradientHook(self, self._guard, tensors, site, context))

    def _wanted(self, key: Key) -> bool:
        """Whether the call at hand is one to record.

        Calls without gradients (evaluation, a frozen teacher, the first pass of reentrant checkpointing) count once
        per step and autocast dtype; the recomputation of checkpointing repeats what was recorded.
        """
        path, kind = key
        grad = kind is TRAINING
        if grad and path in self._recorded_before_backward and in_backward():
            return False
        return self._calls.get(key, 0) < (_MAX_CALLS if grad else 1)

    def _count(self, key: Key) -> None:
        self._calls[key] = self._calls.get(key, 0) + 1
        if key[1] is TRAINING and not in_backward():
            self._recorded_before_backward.add(key[0])

    def _context(self, tensor: torch.Tensor, key: Key) -> Context:
        device = "cpu" if tensor.is_cpu else tensor.device.type
        return made(Context, (self._calls.get(key, 0), autocast_dtype(device), key[1] is TRAINING))

    def _describe(self, tensors: TensorLog, module: nn.Module, path: str) -> None:
        self._described.add(path)
        tensors.log.row("modules", module_row(module, path, tensors.log.step, self._optimizers))


def _slot(base: str, index: int) -> str:
    return base if index == 0 else f"{base}.{index}"
