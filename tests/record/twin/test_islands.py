"""Modules kept in FP32 by a twin: equal to real runs in which somebody has wrapped them by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from ampdoctor.record.recorder import Recorder
from ampdoctor.record.twin.counterfactual import Counterfactual
from ampdoctor.record.twin.worlds import Worlds
from ampdoctor.trace.run import open_run
from ampdoctor.trace.writer import prepare_folder
from tests.record.training import Outcome
from tests.record.twin.networks import WIDTH, spread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCALE, OTHER = 2.0**-3, 2.0**6
EARLY = 2


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
        mixed: torch.Tensor = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return mixed


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        y: torch.Tensor = x + self.mlp(x)
        return y


class Net(nn.Module):
    """Blocks that are kept, or computed a second time in the backward pass."""

    def __init__(self, checkpointing: str = "") -> None:
        super().__init__()
        self.checkpointing = checkpointing
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            if self.checkpointing:
                x = checkpoint(block, x, use_reentrant=self.checkpointing == "reentrant")
            else:
                x = block(x)
        logits: torch.Tensor = self.head(x.mean(1))
        return logits


def islands(module: nn.Module) -> None:
    """Wrap `module` by hand: FP32 inside, the result cast back to what it would have been."""
    forward = module.forward

    def inside(*args: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            result = forward(*(a.float() for a in args))
        return result.to(torch.float16)

    module.forward = inside


def train(
    steps: int, scale_at: Callable[[int], float], wrapped: tuple[str, ...] = (), checkpointing: str = ""
) -> nn.Module:
    """Train; in the last step the modules `wrapped` are in FP32."""
    torch.manual_seed(0)
    model = Net(checkpointing)
    spread(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        if step == steps - 1:
            for path in wrapped:
                islands(model.get_submodule(path))
        x, target = torch.randn(4, 6, WIDTH), torch.randint(8, (4,))
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(x), target)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale_at(step))
        scaler.scale(loss).backward()
        if step < steps - 1:
            scaler.step(optimizer)
            scaler.update()
    return model


class Catching:
    """Keeps the twins' gradients of every second opinion."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wanted: Counterfactual) -> None:
        self.found: dict[str, torch.Tensor] = {}
        compare = Worlds.compare

        def planned(*_: Any, **__: Any) -> tuple[Counterfactual, ...]:
            return (Counterfactual("fp32"), wanted)

        def caught(worlds: Worlds, tensor: torch.Tensor, site: Any, *rest: Any) -> None:
            if site[1] == "weight_grad" and worlds.carried:  # the first step is looked at without any
                (twin,) = (c for c in worlds.carried if c.counterfactual == wanted)
                self.found[".".join(site[::2])] = twin.values(tensor).clone()
            compare(worlds, tensor, site, *rest)

        monkeypatch.setattr("ampdoctor.record.twin.opinions.counterfactuals", planned)
        monkeypatch.setattr(Worlds, "compare", caught)


MODULES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("head",): ("head",),
    ("embed",): ("embed",),
    ("blocks.0.mlp",): ("blocks.0.mlp",),
    ("blocks.1.attention",): ("blocks.1.attention",),
    ("blocks.0.attention.qkv", "blocks.1.mlp.2"): ("blocks.0.attention.qkv", "blocks.1.mlp.2"),
    ("blocks.*.attention.out",): ("blocks.0.attention.out", "blocks.1.attention.out"),
    ("blocks.*.mlp.0",): ("blocks.0.mlp.0", "blocks.1.mlp.0"),
    ("blocks.0.mlp", "blocks.0.mlp.0"): ("blocks.0.mlp",),
    ("nowhere",): (),
}


@pytest.mark.parametrize(
    ("patterns", "checkpointing"),
    [
        *((patterns, "") for patterns in MODULES),
        *((p, c) for p in [("blocks.0.mlp",), ("blocks.*.attention.out",)] for c in ("plain", "reentrant")),
    ],
    ids=str,
)  # fmt: skip
def test_a_module_kept_in_fp32_is_one_wrapped_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patterns: tuple[str, ...], checkpointing: str
) -> None:
    wanted = Counterfactual("fp16", OTHER, patterns)
    catching = Catching(monkeypatch, wanted)
    plain = train(EARLY + 2, lambda _: SCALE, checkpointing=checkpointing)
    catching.found.clear()
    prepare_folder(tmp_path / "run")
    with Recorder(tmp_path / "run", strict=True, prove=None):
        recorded = train(EARLY + 2, lambda _: SCALE, checkpointing=checkpointing)
    scales = dict.fromkeys(range(EARLY + 1), SCALE) | {EARLY: OTHER}
    real = train(EARLY + 1, scales.__getitem__, MODULES[patterns], checkpointing)
    assert bits(plain).differences(bits(recorded)) == []
    expected = {name: p.grad for name, p in real.named_parameters()}
    assert Outcome.of(g=catching.found).differences(Outcome.of(g=expected)) == []
    rows = [r for r in open_run(tmp_path / "run").twins if r.counterfactual == wanted.name]
    assert {tuple(r.fp32_modules) for r in rows} == {patterns}
    assert {r.loss_scale for r in rows if r.role == "weight_grad"} == {OTHER}


def bits(model: nn.Module) -> Outcome:
    """Return weights and gradients to the bit."""
    return Outcome.of(p=list(model.parameters()), g=[p.grad for p in model.parameters()])
