"""A step executed again after it has failed, under followers, from what `RootCalls` has kept of it.

It is the run's own step only if every output comes out the same again; else nothing is concluded from it. Where
hooks of the user's would run once more it is declined, unless that is wanted: `Untouched` does not reach what they do.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.guard import told
from ampdoctor.record.twin.eager import Eagerly, cannot_set_aside
from ampdoctor.record.twin.mode import TwinMode
from ampdoctor.record.twin.replay.backward_again import BackwardAgain
from ampdoctor.record.twin.replay.forward_again import ForwardAgain, NotTheSameError
from ampdoctor.record.twin.replay.places import ReplayPlaces
from ampdoctor.record.twin.replay.refusals import several_ranks
from ampdoctor.record.twin.replay.roots import trained
from ampdoctor.record.twin.replay.surroundings import inside_autocast
from ampdoctor.record.twin.replay.untouched import NotRestorableError, Untouched
from ampdoctor.record.twin.replay.users_hooks import TensorHooks, users_hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

    from ampdoctor.record.twin.mode import Follower
    from ampdoctor.record.twin.replay.kept import RootCalls
    from ampdoctor.record.twin.replay.root_call import RootCall
    from ampdoctor.record.twin.replay.surroundings import Autocast

Gradients = list[tuple[torch.Tensor, torch.Tensor]]
"""Weights, each with what the step's passes add to its gradient, still multiplied by the loss scale."""


@dataclass(frozen=True)
class Outcome:
    """What became of a replay.

    Attributes:
        confirmed: the outputs came out the same to the bit; None where it did not come to that.
        declined: why nothing is to be concluded from it; None where it is the run's own step.
        calls: calls of root modules executed.
        left_out: calls that could not be, by reason.
        passes: backward passes executed; 0 where none had come back to an output yet.
        seeds: gradients that the passes began from.
        wide_seeds: how many of them were taken before their cast to half.
    """

    confirmed: bool | None = None
    declined: str | None = None
    calls: int = 0
    left_out: tuple[str, ...] = ()
    passes: int = 0
    seeds: int = 0
    wide_seeds: int = 0


def replay(
    kept: RootCalls,
    followers: Sequence[Follower],
    *,
    path: Callable[[nn.Module], str],
    on_error: Callable[[Exception], None],
    seeded: Callable[[torch.Tensor], None] | None = None,
    harvest: Callable[[Gradients], None] | None = None,
    hooks_too: bool = False,
) -> Outcome:
    """Execute the step that `kept` holds again, and leave everything as it was.

    Args:
        kept: the step; it is not over yet.
        followers: who sees the operations; what they have seen counts only if the outcome is confirmed.
        path: name of a module.
        on_error: told of an error of a follower.
        seeded: given each gradient that a backward pass is about to begin from, in order to give it a twin: at
            another loss scale, say.
        harvest: given the gradients at the end, while the twins still live.
        hooks_too: let hooks of the user's on modules and tensors run once more; else such a step is declined.
    """
    chosen = executable(kept, hooks_too=hooks_too)
    if chosen.declined is not None:
        return Outcome(declined=chosen.declined, left_out=chosen.left_out)
    kept.replaying = True
    try:
        again = _Again(chosen.calls, kept.passes, followers, path, on_error, seeded or _nothing)
        again.hooks_too = hooks_too
        return again.run(harvest or _nothing, chosen.left_out)
    finally:
        kept.replaying = False


@dataclass(frozen=True)
class Executable:
    """What of a step can be executed again.

    Attributes:
        calls: the calls that can.
        left_out: those that can't, by reason.
        declined: why none can.
    """

    calls: list[RootCall] = field(default_factory=list)
    left_out: tuple[str, ...] = ()
    declined: str | None = None


def executable(kept: RootCalls, *, hooks_too: bool) -> Executable:
    """Return which calls of the step that `kept` holds can be executed again; nothing is executed yet."""
    reason = _forbidden(kept)
    if reason is not None:
        return Executable(declined=reason)
    left_out: Counter[str] = Counter()
    calls = []
    for call in kept.calls:
        stale = call.stale()
        if stale is None:
            calls.append(call)
        else:
            left_out[stale] += 1
    if kept.refused.reason is not None:
        left_out[kept.refused.reason] += 1
    named = tuple(f"{reason} (x{times})" for reason, times in left_out.items())
    if not calls:
        none = "no module was called with gradients enabled, as far as has been seen"
        return Executable(left_out=named, declined=next(iter(left_out), none))
    return Executable(calls, named, None if hooks_too else _forbidden_hooks(calls))


class _Again:
    """One replay.

    Attributes:
        hooks_too: hooks of the user's are let run.
    """

    def __init__(
        self,
        calls: list[RootCall],
        passes: Sequence[Autocast],
        followers: Sequence[Follower],
        path: Callable[[nn.Module], str],
        on_error: Callable[[Exception], None],
        seeded: Callable[[torch.Tensor], None],
    ) -> None:
        self._calls, self._passes = calls, passes
        self.hooks_too = False
        self._tensor_hooks = TensorHooks()
        self._on_error = on_error
        self._errors: list[Exception] = []
        places = ReplayPlaces()
        mode = TwinMode(followers, places, self._errors.append)
        self._hooks = places.following(path)
        self._forward = ForwardAgain(mode, places)
        self._modules = [m for call in calls if (m := call.root.module()) is not None]
        weights = [weight for module in self._modules for weight in trained(module)]
        self._backward = BackwardAgain(mode, places, self._ours(seeded), weights)

    def run(self, harvest: Callable[[Gradients], None], left_out: tuple[str, ...]) -> Outcome:
        """Execute everything."""
        declined = None
        try:
            watched = self._tensor_hooks.watched()
            with Untouched(self._modules), self._hooks, watched, as_in_training():
                self._execute()
                self._ours(harvest)(self._backward.gradients())
        except (NotTheSameError, NotRestorableError) as error:
            declined = str(error)
        except torch.cuda.OutOfMemoryError:
            declined = "out of memory"
        except Exception as error:  # noqa: BLE001 - the user's code, at a time it was not written for
            declined = f"it failed when it was executed again: {told(error)}"
        finally:
            counts = len(self._forward.results), self._backward.seeds, self._backward.wide_seeds
            passes, confirmed = self._backward.passes, self._forward.confirmed
            self._forward.release()
            self._backward.release()
        if self._errors:
            declined = f"the second opinion failed: {told(self._errors[0])}"
            self._on_error(self._errors[0])
        return Outcome(confirmed, declined, counts[0], left_out, passes, *counts[1:])

    def _ours(self, callback: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return `callback` so that its errors are not taken for the user's; after the first error it is not called."""

        def call(value: Any) -> None:
            if self._errors:
                return
            try:
                callback(value)
            except torch.cuda.OutOfMemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - told at the end
                self._errors.append(error)

        return call

    def _execute(self) -> None:
        passes = sorted({n for call in self._calls for o in call.outputs for n in o.gradients})
        if not passes:
            self._forward.execute([call for call in self._calls if call.outputs])
        for number in passes:
            through = [c for c in self._calls if any(number in o.gradients for o in c.outputs)]
            self._forward.execute(_with_makers(through, self._calls))
            if self._tensor_hooks.met and not self.hooks_too:
                raise NotTheSameError("hooks of the training's own on tensors would run a second time")
            later = [n for n in passes if n > number]
            outputs = [
                (tensor, output)
                for call in through
                for tensor, output in self._forward.outputs(call)
                if number in output.gradients
            ]
            with self._passes[number].in_force():
                self._backward.execute(number, outputs, self._forward.inputs, retain=bool(later))
            self._forward.drop([c for c in self._calls if not any(n in o.gradients for o in c.outputs for n in later)])


@contextlib.contextmanager
def as_in_training() -> Iterator[None]:
    """Undo what the guard keeps away, and have compiled modules show their operations."""
    eagerly = Eagerly()
    with torch._C._EnableTorchFunction(), torch.enable_grad():
        eagerly.begin()
        try:
            yield
        finally:
            eagerly.end()


def _with_makers(calls: list[RootCall], usable: list[RootCall]) -> list[RootCall]:
    """Return `calls` and those that have made inputs of theirs, in order."""
    wanted: set[int] = set()
    stack = list(calls)
    while stack:
        call = stack.pop()
        if id(call) not in wanted:
            wanted.add(id(call))
            stack += [maker for maker, _ in call.links.values()]
    return [call for call in usable if id(call) in wanted]


def _forbidden(kept: RootCalls) -> str | None:
    if not kept.enabled:
        return "steps are not kept"
    if kept.why_not is not None:
        return kept.why_not
    if inside_autocast():
        return "it would have to run inside an autocast region that is still open"
    return several_ranks() or cannot_set_aside()


def _forbidden_hooks(calls: list[RootCall]) -> str | None:
    modules = [module for call in calls if (module := call.root.module()) is not None]
    return users_hooks(modules, [tensor for call in calls for tensor, _ in call.inputs])


def _nothing(_: object) -> None:
    """Nobody wants to be told."""
