"""The calls that matter to mixed precision, in order, with the line of the user's code that made them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.backward import BackwardReader
from ampdoctor.record.call_log import CallLog
from ampdoctor.record.clips import Clips
from ampdoctor.record.compiled_steps import CompiledSteps
from ampdoctor.record.failures import broken
from ampdoctor.record.groups import groups_of, parameters_of
from ampdoctor.record.held_gradients import HeldGradients
from ampdoctor.record.log import Outcome
from ampdoctor.record.optimizer_rows import describe
from ampdoctor.record.patching import Patches
from ampdoctor.record.quiet import in_backward
from ampdoctor.record.step_hooks import StepHooks
from ampdoctor.record.tensors import tensors_in
from ampdoctor.record.watch import WATCHERS
from ampdoctor.record.watch.own_scalers import OwnScalers
from ampdoctor.record.watch.penalty_gradients import PenaltyGradients

if TYPE_CHECKING:
    from ampdoctor.record.scaler import ScalerEvents
    from ampdoctor.record.state import State
    from ampdoctor.record.step_ends import StepEnds


class CallWatch:
    """Wraps what has to be wrapped, and takes it off again."""

    def __init__(self, state: State, scalers: ScalerEvents, ends: StepEnds) -> None:
        self._state, self._ends = state, ends
        self._scalers = scalers
        self._log = CallLog(state)
        self._backward = BackwardReader(state)
        self._held = HeldGradients(state)
        self._clips = Clips(state, self._log, scalers, self._held)
        self._penalties = PenaltyGradients(state, self._log)
        self._patches = Patches()
        self._compiled = CompiledSteps(state.guarded(self.untold))
        own_scalers = OwnScalers(state, self._log, scalers, ends, self._meet)
        self._watchers = [self._penalties, own_scalers, *(watcher(state, self._log) for watcher in WATCHERS)]
        before, after = map(state.guarded, (self._before_optimizer_step, self._after_optimizer_step))
        self.step_hooks = StepHooks(before, after)
        self._described: set[str] = set()

    def install(self) -> None:
        """Put every wrapper and hook in place."""
        safe, around = self._state.guarded, self._patches.around
        early = partial(safe, claim=False)
        scaler, optimizer = torch.amp.GradScaler, torch.optim.Optimizer
        after_backward = safe(self._after_backward)

        def settle(*args: Any) -> None:
            self._state.guard.settle()  # also where a failure in the middle of it has switched us off
            after_backward(*args)

        around(torch.autograd, "backward", safe(self._before_backward), settle)
        around(scaler, "scale", safe(self._before_scale), safe(self._after_scale))
        around(scaler, "unscale_", safe(self._before_unscale), safe(self._after_unscale))
        around(scaler, "step", safe(self._before_scaler_step), safe(self._after_scaler_step))
        around(scaler, "update", safe(self._before_update), safe(self._after_update))
        around(scaler, "load_state_dict", early(self._before_scaler_load), early(self._log.finish))
        around(optimizer, "zero_grad", early(self._before_zero_grad), early(self._log.finish))
        self._compiled.watch(self._patches)
        self._clips.install(self._patches)
        for watcher in self._watchers:
            watcher.install(self._patches)
        self.step_hooks.install()

    def noted(self, error: BaseException) -> None:
        """Take note of an exception that passes a place of ours."""
        self._log.noted(error)

    def untold(self, parameters: list[torch.Tensor]) -> None:
        """A step has ended that no optimizer tells of, whose gradients nobody has looked at."""
        self._compiled.told()
        if self._state.log.begun:
            self._state.weights.gradients_of(parameters, scaled=self._state.log.pass_scale is not None)
            self._ends.untold()

    def remove(self) -> None:
        """Take everything off, from within an optimizer's step all but the hooks that torch is going through."""
        self.step_hooks.remove()
        self._patches.undo()
        for watcher in self._watchers:
            watcher.remove()
        self._backward.release()

    def _before_backward(
        self, tensors: Any, grad_tensors: Any = None, _retain_graph: Any = None, create_graph: Any = False,
        *_: Any, **__: Any,
    ) -> dict[str, Any] | None:  # fmt: skip
        if in_backward() or torch.compiler.is_compiling():
            return None
        self._ends.may_end()
        roots = list(tensors_in(tensors))
        read = self._backward.read(roots)
        read["losses"] = self._state.log.losses[-len(roots) :] if roots else []
        read["held"] = self._held.before_backward()
        read["penalty_undivided"] = self._penalties.undivided(roots, self._scalers.value)
        self._penalties.backward_begins(roots, read["scaled"], create_graph=create_graph is True)
        self._state.looks.ledgers.backward_begins(roots)
        if self._state.opinions.replays is not None:
            self._state.opinions.replays.kept.backward_begins(roots)
        if self._state.opinion is not None:
            scaled = self._state.log.pass_scale is not None
            self._state.opinion.backward_begins(
                roots, _seeds(grad_tensors, roots), self._scalers.value() if scaled else None
            )
        return self._log.begin("backward", **read)

    def _after_backward(self, call: dict[str, Any] | None, _: Any, error: BaseException | None) -> None:
        if self._state.opinions.replays is not None:
            self._state.opinions.replays.kept.backward_ended()
        if call is None:
            return
        self._backward.release()
        self._log.finish(call, None, error)
        if self._state.opinion is not None:
            self._state.opinion.backward_ended()
        self._penalties.backward_ended()
        self._state.log.micro_batch += 1
        leaves = self._backward.take_leaves()
        self._state.copies.reached(leaves)
        self._ends.backward_ended(leaves)
        self._held.left()  # by now the optimizers are known

    def _before_scale(self, scaler: Any, outputs: Any = None, *_: Any, **__: Any) -> Any:
        return self._log.begin("scale", self._scalers.name(scaler)), scaler, outputs

    def _after_scale(self, token: Any, result: Any, error: BaseException | None) -> None:
        if token is not None:
            self._log.finish(token[0], None, error)
            if error is None:
                self._scalers.scaled(token[1], token[2], result)

    def _before_unscale(self, scaler: Any, optimizer: Any, *_: Any, **__: Any) -> Any:
        if self._scalers.stepping or not scaler.is_enabled() or not _can_be_followed(optimizer):
            return None
        name = self._state.optimizers.name(optimizer)
        self._state.copies.record()
        self._state.weights.gradients(optimizer, scaled=self._scalers.holds_scaled(scaler, optimizer))
        self._describe(name, optimizer)
        resized = self._held.resized(optimizer, whole=True)
        return self._log.begin("unscale", name, resized=resized), scaler, optimizer

    def _after_unscale(self, token: Any, _: Any, error: BaseException | None) -> None:
        if token is not None:
            self._log.finish(token[0], None, error)
            if error is None:
                self._scalers.unscaled(token[1], token[2])

    def _before_scaler_step(self, scaler: Any, optimizer: Any, *_: Any, **__: Any) -> Any:
        self._scalers.name(scaler)
        if not scaler.is_enabled() or not _can_be_followed(optimizer):
            return None
        name = self._meet(optimizer)
        self._compiled.others_tell()
        self._state.weights.gradients(optimizer, scaled=self._scalers.holds_scaled(scaler, optimizer))
        call = self._log.begin("scaler_step", name, resized=self._held.resized(optimizer, whole=True))
        self._scalers.step_begins(scaler)
        return call, scaler, optimizer

    def _after_scaler_step(self, token: Any, _: Any, error: BaseException | None) -> None:
        if token is None:
            return
        call, scaler, optimizer = token
        self._log.finish(call, None, error)
        skipped = self._scalers.step_ended(scaler, optimizer, failed=error is not None)
        if error is None:
            if skipped:
                self._held.skipped()
                self._state.opinions.failed("skip", self._own_scale())
            self._ends.optimizer_ended(self._state.optimizers.name(optimizer), by_scaler=True)

    def _before_update(self, scaler: Any, new_scale: Any = None, *_: Any, **__: Any) -> Any:
        if not scaler.is_enabled():
            return None
        return self._log.begin("update", self._scalers.name(scaler)), scaler, new_scale is not None

    def _after_update(self, token: Any, _: Any, error: BaseException | None) -> None:
        if token is not None:
            self._log.finish(token[0], None, error)
            if error is None:
                self._scalers.updated(token[1], by_hand=token[2])
                self._ends.may_end()

    def _before_scaler_load(self, scaler: Any, *_: Any, **__: Any) -> dict[str, Any]:
        return self._log.begin("load_state", self._scalers.name(scaler))

    def _before_zero_grad(self, optimizer: Any, *_: Any, **__: Any) -> dict[str, Any]:
        self._state.copies.record()
        return self._log.begin("zero_grad", self._state.optimizers.name(optimizer))

    def _look_for_failure(self, optimizer: torch.optim.Optimizer) -> None:
        """Before a step that no scaler guards: a NaN would be in the weights after it."""
        if broken(self._state.log.losses, parameters_of(optimizer)):
            self._state.opinions.failed("nonfinite-gradient", self._own_scale())

    def _own_scale(self) -> float | None:
        """Return the loss scale in the gradients of the last backward pass; this may wait for the device."""
        log = self._state.log
        return log.hand_scale if log.scale is None else self._scalers.value()

    def _meet(self, optimizer: torch.optim.Optimizer) -> str:
        """Take note of an optimizer that is about to step, or to be skipped, and return its name."""
        name = self._state.optimizers.name(optimizer)
        self._state.copies.record()
        self._ends.optimizer_begins(name)
        log = self._state.log
        self._describe(name, optimizer)
        if log.lr is None:
            log.lr = log.scalar(next((g.get("lr") for g in groups_of(optimizer)), None))
        return name

    def _describe(self, name: str, optimizer: Any) -> None:
        if name not in self._described:
            self._described.add(name)
            describe(self._state.log, name, optimizer)

    def _before_optimizer_step(self, optimizer: Any, args: tuple[Any, ...], kwargs: Any) -> None:
        state = self._state
        if not self._scalers.stepping:
            name = self._meet(optimizer)
            resized = self._held.resized(optimizer)
            self._log.finish(self._log.begin("optimizer_step", name, resized=resized))
        closure = _has_closure(args, kwargs)
        self._compiled.others_tell()
        if not closure:
            state.weights.gradients(optimizer, scaled=self._scalers.any_scaled(optimizer))
            if not self._scalers.stepping and state.opinions.would_replay():
                self._look_for_failure(optimizer)
        self._scalers.optimizer_called = True
        if not closure and state.opinions.replays is not None:
            state.opinions.replays.time_precisions()
        state.weights.before_step(optimizer, closure=closure)
        state.looks.optimizer_begins()

    def _after_optimizer_step(self, optimizer: Any, args: tuple[Any, ...], kwargs: Any) -> None:
        state = self._state
        state.looks.optimizer_ended()
        closure = _has_closure(args, kwargs)
        if closure:
            # A closure runs forward and backward inside step: before it, gradients are stale or missing.
            state.weights.gradients(optimizer, scaled=False)
        state.weights.after_step(optimizer, closure=closure)
        state.casts.optimizer_stepped(state.optimizers.name(optimizer))
        if not self._scalers.stepping:
            state.log.outcomes.append(Outcome(False, 0.0))
            self._ends.optimizer_ended(state.optimizers.name(optimizer), by_scaler=False)


def _seeds(given: Any, roots: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """Return per root the gradient that `backward` was handed; None where it makes ones of its own."""
    if given is None or isinstance(given, torch.Tensor):
        return [given] * len(roots)
    return [g if isinstance(g, torch.Tensor) else None for g in given]


def _has_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return (len(args) > 1 and args[1] is not None) or kwargs.get("closure") is not None


def _can_be_followed(optimizer: Any) -> bool:
    """Whether it may be an optimizer, of whatever class; None, say, is none, and torch is about to say so."""
    return type(optimizer).__weakrefoffset__ > 0
