"""What is kept for the backward pass, against sums that are worked out by hand: elements times bytes of an element."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from tests.record.ledger.books import STEPS, book_of, keep

if TYPE_CHECKING:
    from tests.record.recording import Recording

FP32, BF16 = "float32", "bfloat16"


def _mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def _sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3)


def test_mlp_in_fp32(recording: Recording) -> None:
    model = _mlp()
    book = keep(recording, model, _sgd(model), lambda: torch.randn(32, 8))
    assert book.bytes("forward", "activations", "module", "dtype") == {
        (None, FP32): 32 * 8 * 4,  # the batch, for the gradient of the first weight; its own weight is not needed
        ("1", FP32): 32 * 16 * 4,  # the ReLU's result, for itself and for the second weight: one storage
        ("2", FP32): 32 * 4 * 4,  # the output, which the square keeps
    }
    assert book.bytes("forward", "autocast_cache") == 0


def test_mlp_under_autocast(recording: Recording) -> None:
    model = _mlp()
    book = keep(recording, model, _sgd(model), lambda: torch.randn(32, 8), half=True)
    assert book.bytes("forward", "activations", "module", "dtype") == {
        ("0", BF16): 32 * 8 * 2,  # the batch, cast
        ("1", BF16): 32 * 16 * 2,
        (None, FP32): 32 * 4 * 4,  # `out.float()`, which the square keeps
    }
    # Autocast's cache is gone by now, but the backward pass needs the half copy of the second weight.
    assert book.bytes("forward", "autocast_cache", "dtype") == {BF16: 16 * 4 * 2}


class _Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)
        self.act, self.head = nn.ReLU(inplace=True), nn.Linear(2 * 16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.head(self.act(self.norm(self.conv(x))).flatten(1)))


def _classified(out: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(out.float(), torch.arange(4) % 3)


_OF_THE_LOSS = {
    ("aten._log_softmax", FP32): 4 * 3 * 4,
    ("aten.remainder", "int64"): 4 * 8,  # the targets
    ("aten.nll_loss_forward", FP32): 4,  # how many of them count
}


def test_cnn_in_fp32(recording: Recording) -> None:
    model = _Cnn()
    book = keep(recording, model, _sgd(model), lambda: torch.randn(4, 1, 6, 6), loss=_classified)
    assert book.bytes("forward", "activations", "kind", "dtype") == {
        ("aten.randn", FP32): 4 * 36 * 4,  # the images
        ("aten.convolution", FP32): 4 * 2 * 16 * 4,
        # Mean and deviation of two channels; the norm's result, which ReLU overwrites and of which the head has a view.
        ("aten.native_batch_norm", FP32): 2 * 2 * 4 + 4 * 2 * 16 * 4,
        **_OF_THE_LOSS,
    }
    # Running mean and variance of two channels, and a count of batches.
    assert book.bytes("forward", "buffers", "dtype") == {FP32: 2 * 2 * 4, "int64": 8}


def test_cnn_under_autocast(recording: Recording) -> None:
    model = _Cnn()
    book = keep(recording, model, _sgd(model), lambda: torch.randn(4, 1, 6, 6), loss=_classified, half=True)
    assert book.bytes("forward", "activations", "kind", "dtype") == {
        ("aten._to_copy", BF16): 4 * 36 * 2,
        ("aten.convolution", BF16): 4 * 2 * 16 * 2,
        ("aten.native_batch_norm", FP32): 2 * 2 * 4,  # statistics stay FP32
        ("aten.native_batch_norm", BF16): 4 * 2 * 16 * 2,
        **_OF_THE_LOSS,
    }
    assert book.bytes("forward", "autocast_cache", "dtype") == {BF16: 2 * 9 * 2 + 32 * 3 * 2}


class _Block(nn.Module):
    """Attention with one head, and an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.fc1, self.act, self.fc2 = nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.ln1(x)
        p = torch.bmm(self.q(h), self.k(h).transpose(1, 2)).softmax(-1)
        x = x + self.out(torch.bmm(p, self.v(h)))
        return torch.as_tensor(x + self.fc2(self.act(self.fc1(self.ln2(x)))))


ROWS = 2 * 3  # two sequences of three tokens


def test_transformer_block_in_fp32(recording: Recording) -> None:
    model = _Block()
    book = keep(recording, model, _sgd(model), lambda: torch.randn(2, 3, 8))
    assert book.bytes("forward", "activations", "module", "dtype") == {
        (None, FP32): ROWS * 8 * 4,  # the input, which the first norm keeps
        ("ln1", FP32): (2 * ROWS + ROWS * 8) * 4,  # mean and deviation; the result, once for q, k and v
        ("q", FP32): ROWS * 8 * 4,
        ("k", FP32): ROWS * 8 * 4,
        ("v", FP32): ROWS * 8 * 4,
        # Outside of any module but the block: softmax's result, what it is multiplied by v to, the sum that the second
        # norm keeps, and the last sum, which the square keeps.
        ("", FP32): (2 * 3 * 3 + 3 * ROWS * 8) * 4,
        ("ln2", FP32): (2 * ROWS + ROWS * 8) * 4,
        ("fc1", FP32): ROWS * 32 * 4,
        ("act", FP32): ROWS * 32 * 4,
    }
    assert book.bytes("forward", "activations") == 3432


def test_transformer_block_under_autocast(recording: Recording) -> None:
    model = _Block()
    book = keep(recording, model, _sgd(model), lambda: torch.randn(2, 3, 8), half=True)
    half = ROWS * 8 * 2
    assert book.bytes("forward", "activations", "module", "dtype") == {
        (None, FP32): ROWS * 8 * 4,
        ("ln1", FP32): 2 * ROWS * 4,
        ("q", BF16): 2 * half,  # what each of the three casts the norm's FP32 result to, and its own result
        ("k", BF16): 2 * half,
        ("v", BF16): 2 * half,
        ("", BF16): 2 * 3 * 3 * 2 + half,
        ("", FP32): 2 * ROWS * 8 * 4,  # an FP32 input plus a half branch is FP32
        ("ln2", FP32): 2 * ROWS * 4,
        ("fc1", BF16): half + ROWS * 32 * 2,
        ("act", BF16): ROWS * 32 * 2,
    }
    assert book.bytes("forward", "activations") == 2244


def test_casts_of_the_same_tensor_are_told(recording: Recording) -> None:
    model = _Block()
    book = keep(recording, model, _sgd(model), lambda: torch.randn(2, 3, 8), half=True)
    half = ROWS * 8 * 2
    kinds = book.bytes("forward", "activations", "kind")
    assert kinds["aten._to_copy"] == 2 * half  # for q, and for the MLP
    assert kinds["aten._to_copy (copy)"] == 2 * half  # for k and v once more


def test_the_cache_is_whole_while_autocast_is_on(recording: Recording) -> None:
    model = _mlp()
    optimizer = _sgd(model)
    with recording.start(model=model, optimizer=optimizer, strict=True):
        for _ in range(STEPS):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                model(torch.randn(32, 8)).float().square().mean().backward()
            optimizer.step()
    book = book_of(recording)
    numel = 8 * 16 + 16 + 16 * 4 + 4
    assert book.bytes("forward", "autocast_cache", "dtype") == {BF16: 2 * numel}
    assert book.bytes("backward", "autocast_cache") == 0
