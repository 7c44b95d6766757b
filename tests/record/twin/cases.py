"""The small trainings on which twins must equal real runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from tests.record.twin import networks
from tests.record.twin.loops import Accumulating, Gan, HalfWeights, TwoLosses, WithoutOnednn, vectors
from tests.record.twin.networks import BATCH, CLASSES, FEATURES, LENGTH, VOCABULARY, WIDTH
from tests.record.twin.setting import Setting
from tests.record.twin.training import Case, Training, named

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.record.twin.training import Batch


def classifier(
    model: Callable[[], nn.Module], batch: Callable[[torch.Generator], Batch] = vectors, kind: type[Training] = Training
) -> Callable[[int], Training]:
    """Return the builder of a training of `model` by cross entropy."""

    def build(seed: int) -> Training:
        net = networks.spread(model())

        def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(net(x), target)

        return kind(seed, named(net), batch, loss)

    return build


def images(generator: torch.Generator) -> Batch:
    """Return images and classes."""
    x = torch.randn(BATCH, 3, 8, 8, generator=generator)
    return x, torch.randint(CLASSES, (BATCH,), generator=generator)


def tokens(generator: torch.Generator) -> Batch:
    """Return tokens and the tokens that follow them."""
    text = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
    return text[:, :-1], text[:, 1:].flatten()


def sequences(generator: torch.Generator) -> Batch:
    """Return sequences of features and classes."""
    x = torch.randn(BATCH, LENGTH, FEATURES, generator=generator)
    return x, torch.randint(CLASSES, (BATCH,), generator=generator)


def functional(seed: int) -> Training:
    """No module anywhere."""
    shapes = {"w1": (WIDTH, FEATURES), "b1": (WIDTH,), "w2": (CLASSES, WIDTH), "gain": (WIDTH,)}
    p = {
        name: nn.Parameter(0.2 * torch.randn(shape) * torch.exp2(-8 * torch.rand(shape[-1:])))
        for name, shape in shapes.items()
    }

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(F.linear(x, p["w1"], p["b1"]))
        hidden = F.layer_norm(hidden, (WIDTH,), p["gain"])
        return F.cross_entropy(hidden @ p["w2"].T, target)

    return Training(seed, p, vectors, loss)


def _runs_here(case: Case) -> bool:
    """Whether torch has for this CPU what `case` needs: for an LSTM in BF16 oneDNN wants AVX-512."""
    try:
        case.start(0).run_step(Setting(case.halves[0]))
    except RuntimeError:
        return False
    return True


_LSTM = Case("lstm-onednn", classifier(partial(networks.Recurrent, nn.LSTM), sequences), (torch.bfloat16,))

ONEDNN_LSTM = (_LSTM,) if _runs_here(_LSTM) else ()

CASES = (
    Case("mlp", classifier(networks.mlp)),
    Case("cnn", classifier(networks.cnn, images)),
    Case("transformer", classifier(networks.Transformer, tokens)),
    Case("lstm", classifier(partial(networks.Recurrent, nn.LSTM), sequences, WithoutOnednn)),
    *ONEDNN_LSTM,
    Case("gru", classifier(partial(networks.Recurrent, nn.GRU), sequences)),
    Case("vit", classifier(networks.Vit, images)),
    Case("tied", classifier(networks.Tied, tokens)),
    Case("checkpointed", classifier(partial(networks.Checkpointed, reentrant=False))),
    Case("checkpointed-reentrant", classifier(partial(networks.Checkpointed, reentrant=True))),
    Case("accumulated", classifier(networks.mlp, kind=Accumulating)),
    Case("two-losses", TwoLosses),
    Case("gan", partial(Gan, shared=False)),
    Case("gan-shared-fake", partial(Gan, shared=True)),
    Case("functional", functional),
    Case("island", classifier(networks.Island)),
    Case("half-weights", lambda seed: HalfWeights(seed, networks.mlp())),
)
