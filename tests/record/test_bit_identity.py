"""Training under the recorder comes out as without it: compared by bits, never with a tolerance."""

from __future__ import annotations

import warnings
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.record import models
from tests.record.loops import LOOPS
from tests.record.recording import Recording
from tests.record.training import OPTIMIZERS, Training

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.record.training import Outcome

STEPS = 50

MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "mlp": models.mlp,
    "convnet": models.ConvNet,
    "residual": models.Residual,
    "transformer": models.Transformer,
    "gru": models.Recurrent,
    "tied": models.Tied,
    "checkpointed": partial(models.Checkpointed, reentrant=False),
    "checkpointed-reentrant": partial(models.Checkpointed, reentrant=True),
    "many-outputs": models.ManyOutputs,
}

TRAININGS: dict[str, dict[str, Any]] = {
    **{f"{name}-fp16": {"model": model, "precision": "fp16"} for name, model in MODELS.items()},
    **{f"{name}-bf16": {"model": MODELS[name], "precision": "bf16"} for name in ("convnet", "transformer", "tied")},
    **{f"mlp-fp32-{name}": {"optimizer": name} for name in OPTIMIZERS},
    **{f"mlp-fp16-{name}": {"optimizer": name, "precision": "fp16"} for name in OPTIMIZERS if name != "lbfgs"},
    "convnet-fp32": {"model": models.ConvNet},
    "transformer-fp32": {"model": models.Transformer},
    "mlp-lbfgs-bf16": {"optimizer": "lbfgs", "precision": "bf16"},
    "pure-bf16-weights": {"weights": torch.bfloat16},
    "pure-fp16-weights": {"weights": torch.float16, "optimizer": "sgd-momentum"},
    "bf16-weights-fused": {"weights": torch.bfloat16, "optimizer": "adamw-fused"},
    "accumulated-fp16": {"precision": "fp16", "accumulate": 3},
    "clipped-fp16": {"precision": "fp16", "clip": True},
    "clipped-fp16-fused": {"precision": "fp16", "clip": True, "optimizer": "adamw-fused"},
    "clipped-fp32": {"clip": True},
}  # fmt: skip


@pytest.mark.parametrize("settings", TRAININGS.values(), ids=TRAININGS.keys())
def test_a_training_is_the_same_under_the_recorder(settings: dict[str, Any], tmp_path_factory: Any) -> None:
    alone = Training(**settings).run(STEPS)
    # The default schedule, which takes hooks off and on again, with every optimizer and a scaler that skips.
    default_too = settings.get("precision") == "fp16" and "model" not in settings
    for every in (1, None) if default_too else (1,):
        recording = _new_recording(tmp_path_factory)
        with recording.start(every=every):
            recorded = Training(**settings).run(STEPS)
        assert recorded.differences(alone) == []
        assert recording.run.info.status == "complete"
        assert len(recording.run.steps) == STEPS


def _new_recording(factory: Any) -> Recording:
    return Recording(factory.mktemp("trace") / "run")


def test_a_scaler_skips_in_these_trainings(recording: Recording) -> None:
    # Otherwise the FP16 cases above would not cover skipped steps.
    training = Training(precision="fp16")
    training.run(STEPS)
    assert min(training.scales) < training.init_scale
    assert any(after > before for before, after in pairwise(training.scales))


def test_the_comparison_sees_a_single_bit() -> None:
    def trained(nudge: float) -> Outcome:
        training = Training()
        training.losses.append(torch.tensor(nudge))
        return training.run(2)

    assert trained(0.0).differences(trained(0.0)) == []
    assert trained(0.0).differences(trained(-0.0)) == [".losses[0]"]


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS.keys())
def test_an_unusual_loop_is_the_same_under_the_recorder(loop: Any, tmp_path_factory: Any) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Anomaly Detection|Lazy modules")
        alone = loop(STEPS)
        for every in (1, None):
            recording = _new_recording(tmp_path_factory)
            with recording.start(every=every):
                recorded = loop(STEPS)
            assert recorded.differences(alone) == []
            assert recording.run.info.status == "complete"


def test_what_is_written_to_is_not_written_to_twice(recording: Recording) -> None:
    """Both of those who look at roundings and totals go on to the end of each step that they look at."""
    alone = LOOPS["out_arguments"](5)
    with recording.start():
        recorded = LOOPS["out_arguments"](5)
    assert recorded.differences(alone) == []
    assert [r.step for r in recording.run.roundings if r.kind == "watched"] == [0]
    assert [s.step for s in recording.run.steps if s.totals_watched] == [1, 3]
