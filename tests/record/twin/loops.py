"""The steps that are more than one forward, one backward and one optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from tests.record.twin.networks import BATCH, FEATURES, WIDTH, TwoHeads, spread
from tests.record.twin.training import Observer, Training, named

if TYPE_CHECKING:
    from tests.record.twin.setting import Scaling, Setting
    from tests.record.twin.training import Batch


class Accumulating(Training):
    """Two micro-batches make one step."""

    def forward_backward(self, setting: Setting, scaling: Scaling, batch: Batch) -> list[torch.Tensor]:
        losses = []
        for part in zip(*(b.chunk(2) for b in batch), strict=True):
            with setting.autocast():
                losses.append(self.loss(*part) / 2)
            scaling.backward(losses[-1])
        return losses


class WithoutOnednn(Training):
    """oneDNN has no FP16 LSTM for most CPUs, where torch then fails; without it every format takes torch's own path."""

    def forward_backward(self, setting: Setting, scaling: Scaling, batch: Batch) -> list[torch.Tensor]:
        before = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)  # torch.backends.mkldnn.flags warns of TF32 here
        try:
            return super().forward_backward(setting, scaling, batch)
        finally:
            torch._C._set_mkldnn_enabled(before)


class TwoLosses(Training):
    """Two backward calls through one graph."""

    def __init__(self, seed: int) -> None:
        self.model = TwoHeads()
        spread(self.model)
        super().__init__(seed, named(self.model), vectors, lambda: torch.zeros(()))

    def forward_backward(self, setting: Setting, scaling: Scaling, batch: Batch) -> list[torch.Tensor]:
        x, target = batch
        with setting.autocast():
            logits, rebuilt = self.model(x)
            losses = [F.cross_entropy(logits, target), 0.1 * F.mse_loss(rebuilt, x)]
        scaling.backward(losses[0], retain_graph=True)
        scaling.backward(losses[1])
        return losses


class HalfWeights(Training):
    """Weights held in half precision, no autocast; FP32 and BF16 start from the same half weights."""

    def __init__(self, seed: int, model: nn.Module) -> None:
        self.model = spread(model).half()
        super().__init__(seed, named(self.model), vectors, self._loss)

    def _loss(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        dtype = next(self.model.parameters()).dtype
        return F.cross_entropy(self.model(x.to(dtype)).float(), target)

    def adopt(self, setting: Setting) -> None:
        self.model.to(setting.dtype)

    def forward_backward(self, setting: Setting, scaling: Scaling, batch: Batch) -> list[torch.Tensor]:
        loss = self.loss(*batch)
        scaling.backward(loss)
        return [loss]


class Gan(Training):
    """Two optimizers; the generator's half meets a discriminator that has just been updated.

    With `shared` the generator runs once and its output serves both halves, as in DCGAN's example.
    """

    def __init__(self, seed: int, *, shared: bool) -> None:
        self.shared = shared
        self.generator = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(inplace=True), nn.Linear(WIDTH, WIDTH))
        self.discriminator = nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(0.2, inplace=True), nn.Linear(WIDTH, 1)
        )
        spread(self.generator), spread(self.discriminator)
        self.of_generator = {f"generator.{n}": p for n, p in named(self.generator).items()}
        self.of_discriminator = {f"discriminator.{n}": p for n, p in named(self.discriminator).items()}
        parameters = {**self.of_generator, **self.of_discriminator}
        super().__init__(seed, parameters, pairs, lambda: torch.zeros(()))
        self.optimizer_d = torch.optim.Adam(self.of_discriminator.values(), lr=1e-2)
        self.optimizer_g = torch.optim.Adam(self.of_generator.values(), lr=1e-2)

    def run_step(self, setting: Setting, observer: Observer | None = None) -> list[torch.Tensor]:
        observer = observer or Observer()
        scaling = self.scaling(setting)
        noise, real = self.next_batch()
        one, zero = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        judge = F.binary_cross_entropy_with_logits
        self.optimizer_d.zero_grad()
        with observer.during():
            with setting.autocast():
                fake = self.generator(noise)
                loss_d = judge(self.discriminator(real), one)
                loss_d = loss_d + judge(self.discriminator(fake.detach()), zero)
            scaling.backward(loss_d)
            observer.before_optimizer(self.optimizer_d, self.of_discriminator)
        scaling.step(self.optimizer_d)
        observer.after_optimizer(self.optimizer_d, self.of_discriminator)
        self.optimizer_g.zero_grad()
        with observer.during():
            with setting.autocast():
                if not self.shared:
                    fake = self.generator(noise)
                loss_g = judge(self.discriminator(fake), one)
            scaling.backward(loss_g)
            observer.before_optimizer(self.optimizer_g, self.of_generator)
        scaling.step(self.optimizer_g)
        observer.after_optimizer(self.optimizer_g, self.of_generator)
        scaling.update()
        return [loss_d.detach(), loss_g.detach()]


def vectors(generator: torch.Generator) -> Batch:
    """Return features and classes."""
    x = torch.randn(BATCH, FEATURES, generator=generator)
    return x, torch.randint(8, (BATCH,), generator=generator)


def pairs(generator: torch.Generator) -> Batch:
    """Return a GAN's noise and real samples."""
    noise = torch.randn(BATCH, FEATURES, generator=generator)
    return noise, 2.0 * torch.rand(BATCH, WIDTH, generator=generator)
