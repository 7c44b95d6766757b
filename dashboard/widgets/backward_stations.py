"""The stations from the scaling of the loss to the update of the scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.scaling import ScalingKind
from ampdoctor.analysis.wording import number, percent, scale_text
from ampdoctor.finding import Grade
from ampdoctor_dashboard.widgets.station import (
    BAD,
    GOOD,
    UNKNOWN,
    UNUSED,
    WARN,
    Fact,
    Shown,
    broken,
    named,
    spread,
    unrecorded,
)

if TYPE_CHECKING:
    from ampdoctor_dashboard.data.pipeline import StepFacts
    from ampdoctor_dashboard.words import Words


def _no_scaler(facts: StepFacts, words: Words) -> Shown | None:
    """Return what the scaler's stations say without a scaler; None with one."""
    if facts.scaling in {ScalingKind.DYNAMIC, ScalingKind.STATIC}:
        return None
    if facts.half == "bfloat16":
        return Shown(UNUSED, words("not used: BF16 has FP32's range and needs no loss scale"))
    if facts.half is None:
        return Shown(UNUSED, words("not used: FP32 needs no loss scale"))
    if facts.scaling is ScalingKind.DISABLED:
        return Shown(WARN, words("the GradScaler is disabled, in FP16"))
    return Shown(UNUSED, words("not used: there is no GradScaler"))


def scale(facts: StepFacts, words: Words) -> Shown:
    """Return what the scaling of the loss has to say."""
    shown = _no_scaler(facts, words)
    if shown is not None and facts.scaling is not ScalingKind.HAND_WRITTEN:
        if facts.half == "float16" and facts.scaling is ScalingKind.NONE:
            return Shown(WARN, words("nothing scales the loss, although the gradients are FP16"))
        return shown
    if facts.scale is None:
        return Shown(UNKNOWN, words("not recorded on this step"))
    kinds = {
        ScalingKind.DYNAMIC: words("dynamic GradScaler"),
        ScalingKind.STATIC: words("GradScaler with a pinned scale"),
        ScalingKind.HAND_WRITTEN: words("factor written by hand"),
    }
    name = kinds[facts.scaling]
    return Shown(says=name, facts=[Fact(words("loss scale"), scale_text(facts.scale))])


def backward(facts: StepFacts, words: Words) -> Shown:
    """Return what the backward pass has to say."""
    values = facts.of("grad_output")
    if not values:
        return Shown(UNKNOWN, unrecorded(facts, words))
    dtypes = tuple(v.dtype for v in values)
    shown = Shown(says=words("gradients in {dtype}", dtype=named(dtypes)), dtypes=dtypes, values=values)
    if facts.gradient is not None and facts.gradient.nonzero:
        flushed = facts.gradient.flushed / facts.gradient.nonzero
        shown.facts.append(Fact(words("of the gradient is flushed"), percent(flushed), Grade.MEASURED))
        if facts.gradient.cosine is not None:
            shown.facts.append(Fact(words("cosine to FP32"), f"{facts.gradient.cosine:.6g}", Grade.MEASURED))
    zeros = facts.zero_share("grad_output")
    if zeros is not None:
        shown.facts.append(Fact(words("zeros, of any cause"), percent(zeros)))
    shown.facts += spread(values, words)
    return broken(shown, facts, "grad_output", words)


def unscale(facts: StepFacts, words: Words) -> Shown:
    """Return what the unscaling of the gradients has to say."""
    values = facts.of("weight_grad")
    shown = _no_scaler(facts, words)
    if shown is None:
        by_hand = facts.call("unscale") is not None
        says = words("by scaler.unscale_") if by_hand else words("within scaler.step")
        if not by_hand and facts.call("scaler_step") is None:
            return Shown(WARN, words("no call divides the gradients by the scale on this step"), values=values)
        shown = Shown(says=says)
    shown.values, shown.dtypes = values, tuple(v.dtype for v in values)
    shown.facts += spread(values, words)
    scale = next((v.scale for v in values if v.scale), None)
    if scale is not None:
        shown.facts.append(Fact(words("recorded before unscaling, at scale"), scale_text(scale)))
    return shown


def clip(facts: StepFacts, words: Words) -> Shown:
    """Return what the clipping has to say."""
    call = facts.call("clip_norm", "clip_value")
    if call is None:
        return Shown(UNUSED, words("not used: the training clips nothing"))
    shown = Shown(says=words("clipped"))
    if call.norm is not None:
        shown.facts.append(Fact(words("norm"), number(call.norm)))
    if call.limit is not None:
        shown.facts.append(Fact(words("limit"), number(call.limit)))
    return shown


def check(facts: StepFacts, words: Words) -> Shown:
    """Return what the search for infinities has to say."""
    shown = _no_scaler(facts, words)
    found = facts.row.found_inf if facts.row else None
    if shown is None:
        says = {
            None: words("not recorded on this step"),
            True: words("found infinite or NaN gradients"),
            False: words("all gradients are finite"),
        }
        shown = Shown({None: UNKNOWN, True: WARN, False: GOOD}[found], says[found])
    elif facts.nonfinite("weight_grad"):
        shown = Shown(BAD, words("gradients are not finite, and nothing looks for that"))
    if facts.of("weight_grad"):
        count = facts.nonfinite("weight_grad")
        shown.facts.append(Fact(words("NaN or infinite elements of weight gradients"), f"{count:,}"))
    return shown


def step(facts: StepFacts, words: Words) -> Shown:
    """Return what the step of the optimizer has to say."""
    applied = facts.row.applied if facts.row else None
    if applied is None:
        return Shown(UNKNOWN, words("no optimizer step was recorded"))
    values = facts.of("update")
    shown = Shown(
        GOOD if applied else WARN,
        words("the weights were changed") if applied else words("skipped: nothing was learned"),
    )
    shown.values, shown.dtypes = values, tuple(v.dtype for v in values)
    if facts.optimizers:
        shown.facts.append(Fact(words("optimizer"), ", ".join(facts.optimizers[:3])))
    if facts.row and facts.row.lr is not None:
        shown.facts.append(Fact(words("learning rate"), f"{facts.row.lr:.3g}"))
    state = facts.of("optimizer_state")
    if state:
        shown.facts.append(Fact(words("optimizer state in"), named([v.dtype for v in state])))
    shown.facts += spread(values, words)
    return shown


def update(facts: StepFacts, words: Words) -> Shown:
    """Return what the update of the scale has to say."""
    shown = _no_scaler(facts, words)
    if shown is not None:
        return shown
    event = facts.event("growth", "backoff", "hold", "set")
    if event is None:
        return Shown(WARN if facts.events else UNKNOWN, words("no update of the scale was recorded on this step"))
    says = {
        "growth": words("the scale grew"),
        "backoff": words("the scale backed off"),
        "hold": words("the scale stays"),
        "set": words("the scale was set by hand"),
    }
    shown = Shown(WARN if event.event == "backoff" else GOOD, says[event.event])
    if event.scale is not None and event.scale_after is not None:
        after = scale_text(event.scale_after)
        change = after if event.scale == event.scale_after else f"{scale_text(event.scale)} → {after}"
        shown.facts.append(Fact(words("loss scale"), change))
    return shown
