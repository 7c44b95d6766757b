"""By which means the loss was scaled."""

from __future__ import annotations

import pytest

from ampdoctor.analysis.calls.scale_updates import scale_updates
from ampdoctor.analysis.calls.scaling import LossScaling, ScalingKind, hand_scales, loss_scaling
from ampdoctor.trace.builder import RunBuilder


def _scaler(interval: int, *updates: tuple[str, float, float], **config: float) -> LossScaling:
    run = RunBuilder().step()
    run.scaler("seen", enabled=True, scale=4.0, growth_interval=interval, growth_factor=2.0, **config)
    for event, before, after in updates:
        run.scaler(event, scale=before, scale_after=after)
    return loss_scaling(run.build())


def _by_hand(*factors: float | None, largest: float | None = None, dtype: str = "float16") -> LossScaling:
    run = RunBuilder()
    for factor in factors:
        run.step().call("backward", scaled="none", factor=factor, largest_factor=largest)
        run.tensor("a", "grad_output", dtype=dtype, exponents={0: 9})
    return loss_scaling(run.build())


def test_torchs_defaults_are_dynamic() -> None:
    scaling = _scaler(2000, ("hold", 4.0, 4.0))
    assert (scaling.kind, scaling.first, scaling.last) == (ScalingKind.DYNAMIC, 4.0, 4.0)
    assert scaling.automatic


def test_a_scaler_that_never_grows_is_static() -> None:
    scaling = _scaler(10**9, ("hold", 4.0, 4.0))
    assert scaling.kind is ScalingKind.STATIC
    assert scaling.phrase == "a loss scale pinned at 4"


def test_a_scaler_that_was_seen_growing_is_dynamic() -> None:
    assert _scaler(10**9, ("growth", 4.0, 8.0)).kind is ScalingKind.DYNAMIC


@pytest.mark.parametrize(
    ("updates", "kind"),
    [
        ([("growth", 4.0, 8.0), ("set", 8.0, 4.0)], ScalingKind.STATIC),
        ([("set", 8.0, 4.0), ("set", 4.0, 4.0)], ScalingKind.DYNAMIC),
        ([("set", 4.0, 4.0), ("set", 4.0, 4.0)], ScalingKind.STATIC),
        ([("growth", 4.0, 8.0), ("set", 8.0, 4.0), ("growth", 4.0, 8.0)], ScalingKind.DYNAMIC),
        ([("backoff", 8.0, 4.0), ("set", 4.0, 8.0)], ScalingKind.DYNAMIC),
    ],
)
def test_a_scale_that_code_holds_where_it_is_does_not_grow(
    updates: list[tuple[str, float, float]], kind: ScalingKind
) -> None:
    assert _scaler(2000, *updates).kind is kind


def test_a_scale_that_is_raised_by_hand_is_not_pinned() -> None:
    assert _scaler(10**9, ("set", 4.0, 256.0)).kind is ScalingKind.DYNAMIC
    assert _scaler(10**9, ("set", 256.0, 4.0)).kind is ScalingKind.STATIC


def test_a_scale_that_is_not_known_is_not_made_up() -> None:
    run = RunBuilder().step().scaler("seen", enabled=True)
    assert loss_scaling(run.build()).phrase == "dynamic loss scaling"


def test_a_disabled_scaler_is_no_scaling() -> None:
    scaling = loss_scaling(RunBuilder().step().scaler("seen", enabled=False).build())
    assert scaling.kind is ScalingKind.DISABLED
    assert not scaling.automatic


@pytest.mark.parametrize("factor", [None, 1.0, 0.125, 1e-3, 2.0, 4.0, 7.0])
def test_averaging_and_weighting_are_no_scaling(factor: float | None) -> None:
    assert _by_hand(factor, factor).kind is ScalingKind.NONE


def test_a_factor_written_by_hand_is_a_scale() -> None:
    scaling = _by_hand(1024.0, 1024.0)
    assert (scaling.kind, scaling.last) == (ScalingKind.HAND_WRITTEN, 1024.0)


def test_a_hand_written_scale_shows_although_the_loss_is_averaged_too() -> None:
    scaling = _by_hand(128.0 * 1e-4, largest=128.0)
    assert (scaling.kind, scaling.last) == (ScalingKind.HAND_WRITTEN, 128.0)
    assert scaling.factor == pytest.approx(1e-4)
    assert _by_hand(4.0 * 1e-4, largest=4.0).kind is ScalingKind.NONE


@pytest.mark.parametrize("factor", [100.0, 128.0, 1000.0, 65536.0])
def test_a_power_of_two_is_no_better_a_loss_scale_than_another_number(factor: float) -> None:
    assert _by_hand(factor, factor).last == factor
    assert _by_hand(factor * 1e-4, largest=factor).last == factor


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("factor", [10.0, 1024.0])
def test_without_fp16_a_factor_is_a_weight(dtype: str, factor: float) -> None:
    scaling = _by_hand(factor, factor, dtype=dtype)
    assert (scaling.kind, scaling.factor) == (ScalingKind.NONE, factor)
    assert scaling.phrase == "no loss scaling"


def test_hand_scales_are_known_by_step() -> None:
    run = RunBuilder()
    for factor in (16.0, 32.0):
        run.step().call("backward", scaled="none", factor=factor)
        run.tensor("a", "activation", dtype="float16", exponents={0: 9})
    assert hand_scales(run.build()) == {0: 16.0, 1: 32.0}
    assert hand_scales(RunBuilder().step().call("backward", factor=1.0).build()) == {}


def test_updates_are_kept_apart_by_scaler() -> None:
    run = RunBuilder().step()
    run.scaler("hold", scale=8.0, scale_after=8.0).scaler("step", scale=8.0)
    run.scaler("backoff", scale=4.0, scale_after=2.0, scaler="scaler1")
    updates = scale_updates(run.build())
    assert [u.event for u in updates["scaler0"]] == ["hold"]
    assert [(u.before, u.after) for u in updates["scaler1"]] == [(4.0, 2.0)]
