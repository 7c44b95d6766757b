"""What a step is said to take, against sums that are worked out by hand: elements times bytes of an element."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ampdoctor.record.planning.result import COMPONENTS
from tests.record.planning.models import BATCH, HIDDEN, IN, OUT, PARAMETERS, planned, transformer

LAYERS = (IN * HIDDEN, HIDDEN, HIDDEN * OUT, OUT)
"""Elements of each parameter."""

COUNTERS = 4 * len(LAYERS)
"""An FP32 number for each parameter's step, which on a CUDA device lies in the host's memory."""


def blocks(*sizes: int) -> int:
    """Return the bytes that CUDA's allocator takes for tensors of these sizes: each in blocks of 512."""
    return sum(-(-size // 512) * 512 for size in sizes)


def test_fp32() -> None:
    forward = planned().ends["forward"]
    # Kept: the input (for the first weight's gradient), what ReLU returns (for its own and the second weight's), the
    # log-softmax, the targets of 8 bytes, and nll_loss's sum of class weights. Weights are no activations.
    kept = 4 * BATCH * IN + 4 * BATCH * HIDDEN + 4 * BATCH * OUT + 8 * BATCH + 4
    assert forward == dict.fromkeys(COMPONENTS, 0) | {
        "weights": 4 * PARAMETERS,
        "optimizer": 8 * PARAMETERS + COUNTERS,
        "activations": kept,
        "temporary": 4,  # the loss
    }


def test_autocast_on_a_cpu() -> None:
    forward = planned(layout="amp-bf16").ends["forward"]
    # Kept: the input in BF16, ReLU's result in BF16, and as cross-entropy runs in FP32 its log-softmax in FP32.
    assert forward["activations"] == 2 * BATCH * IN + 2 * BATCH * HIDDEN + 4 * BATCH * OUT + 8 * BATCH + 4
    # The first weight's copy is for nobody: the input needs no gradient. Biases' copies are not kept either.
    assert forward["autocast_cache"] == 2 * HIDDEN * OUT
    assert forward["temporary"] == 4 * BATCH * IN + 4  # the input as it came, and the loss
    assert (forward["weights"], forward["optimizer"]) == (4 * PARAMETERS, 8 * PARAMETERS + COUNTERS)


@pytest.mark.parametrize("layout", ["amp-bf16", "amp-fp16"])
def test_autocast_on_cuda(layout: str) -> None:
    forward = planned(layout=layout, on_cuda=True).ends["forward"]
    # There cross-entropy asks for a log-softmax in the dtype of the logits, and nll_loss alone is in FP32.
    softmaxes = (2 * BATCH * OUT, 4 * BATCH * OUT)
    assert forward["activations"] == blocks(2 * BATCH * IN, 2 * BATCH * HIDDEN, *softmaxes, 8 * BATCH, 4)
    assert forward["optimizer"] == 2 * blocks(*(4 * n for n in LAYERS))


def test_at_the_end_of_a_step_gradients_and_state_are_there() -> None:
    end = planned(layout="pure-bf16").ends["step"]
    assert (end["weights"], end["gradients"]) == (2 * PARAMETERS, 2 * PARAMETERS)
    assert end["optimizer"] == 4 * PARAMETERS + COUNTERS
    assert end["autocast_cache"] == end["master_weights"] == 0


def test_masters_have_gradients_of_their_own_while_the_optimizer_steps() -> None:
    memory = planned(layout="fp16-master", batch=1)
    assert memory.phase == "step"
    assert memory.components["weights"] == 2 * PARAMETERS
    assert memory.components["master_weights"] == 4 * PARAMETERS
    assert memory.components["gradients"] == (2 + 4) * PARAMETERS
    assert memory.ends["step"]["gradients"] == 2 * PARAMETERS
    assert memory.ends["step"]["optimizer"] == 8 * PARAMETERS + COUNTERS


def test_on_cuda_the_optimizer_steps_all_parameters_at_once() -> None:
    memory = planned(batch=1, on_cuda=True)
    # The square roots of all second moments.
    assert memory.components["temporary"] >= 4 * PARAMETERS
    fused = planned(batch=1, optimizer="adamw-fused", on_cuda=True)
    counters = blocks(*(4 for _ in LAYERS))  # of a fused step they lie on the device
    assert fused.peaks["step"] <= memory.peaks["step"] - 4 * PARAMETERS + counters


def test_components_add_up_to_the_peak() -> None:
    for layout in ("fp32", "amp-fp16", "zero3"):
        memory = planned(transformer, layout, batch=4, on_cuda=True)
        assert sum(memory.components.values()) == memory.peak_bytes == max(memory.peaks.values())


def test_checkpointed_blocks_keep_their_inputs_only() -> None:
    plain, checkpointed = (planned(transformer, batch=8, checkpoint=each) for each in (False, True))
    assert checkpointed.ends["forward"]["activations"] < 0.4 * plain.ends["forward"]["activations"]
    assert checkpointed.ends["step"] == plain.ends["step"]


class Encoder(nn.Module):
    """One of torch's own, whose layers are copies of one and which looks at its mask."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x, mask=torch.zeros(8, 8, dtype=x.dtype))  # type: ignore[no-any-return]


def test_torchs_own_transformer() -> None:
    memory = planned(lambda: (Encoder(), lambda size: torch.randn(size, 8, 16)), batch=2)
    assert memory.ends["step"]["weights"] == 4 * sum(p.numel() for p in Encoder().parameters())


def network() -> Any:
    layers = (
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16 * 8 * 8, 10),
    )  # fmt: skip
    return nn.Sequential(*layers), lambda size: torch.randn(size, 3, 16, 16)


def test_a_convolutional_network() -> None:
    forward = planned(network, batch=4).ends["forward"]
    conv, pooled = 16 * 16 * 16, 16 * 8 * 8
    # Of each sample the image; the convolution's result, for the norm; what ReLU has written over the norm's result,
    # for itself and the pooling; where the maxima were, in 8 bytes; the pooled, for the weight's gradient. Of the norm
    # mean and deviation of each channel. The loss is the mean of ten outputs: nothing is kept for it.
    kept = 4 * (4 * 3 * 16 * 16 + 2 * 4 * conv + 8 * pooled + 4 * pooled) + 2 * 4 * 16
    assert forward["activations"] == kept
    assert forward["buffers"] == 4 * (16 + 16) + 8
