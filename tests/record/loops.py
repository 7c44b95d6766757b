"""Training loops that are not the usual one: each returns everything that came out of it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.record.models import CLASSES, FEATURES, mlp
from tests.record.training import Outcome, autocast, seed

if TYPE_CHECKING:
    from collections.abc import Callable


def gan(steps: int) -> Outcome:
    """Two optimizers and one scaler take turns."""
    seed()
    generator = nn.Sequential(nn.Linear(4, FEATURES), nn.ReLU(inplace=True), nn.Linear(FEATURES, FEATURES))
    critic = nn.Sequential(nn.Linear(FEATURES, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    for_generator = torch.optim.Adam(generator.parameters(), lr=1e-2)
    for_critic = torch.optim.SGD(critic.parameters(), lr=1e-2, momentum=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=4)
    losses = []
    for _ in range(steps):
        real, noise = torch.randn(4, FEATURES), torch.randn(4, 4)
        for_critic.zero_grad()
        with autocast("fp16"):
            fake = generator(noise)
            loss = F.softplus(critic(fake.detach())).mean() + F.softplus(-critic(real)).mean()
        scaler.scale(loss).backward()
        scaler.step(for_critic)
        for_generator.zero_grad()
        with autocast("fp16"):
            adversarial = F.softplus(-critic(fake)).mean()
        scaler.scale(adversarial).backward()
        scaler.step(for_generator)
        scaler.update()
        losses += [loss.detach(), adversarial.detach()]
    return _outcome([generator, critic], [for_generator, for_critic], losses=losses, scaler=scaler.state_dict())


def by_hand(steps: int) -> Outcome:
    """No optimizer: the weights are bare tensors, updated in place."""
    seed()
    weights = [torch.randn(FEATURES, 8, requires_grad=True), torch.randn(8, CLASSES, requires_grad=True)]
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(torch.tanh(torch.randn(4, FEATURES) @ weights[0]) @ weights[1], torch.arange(4))
        loss.backward()
        with torch.no_grad():
            for weight in weights:
                assert weight.grad is not None
                weight.sub_(0.1 * weight.grad)
                weight.grad = None
        losses.append(loss.detach())
    return Outcome.of(weights=weights, losses=losses)


def gradient_penalty(steps: int) -> Outcome:
    """A gradient of a gradient, and a graph that is used twice."""
    seed()
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.Softplus(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        x = torch.randn(4, FEATURES, requires_grad=True)
        out = model(x).sum()
        (slope,) = torch.autograd.grad(out, x, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        optimizer.zero_grad()
        out.backward(retain_graph=True)
        penalty.backward()
        optimizer.step()
        losses.append(penalty.detach())
    return _outcome([model], [optimizer], losses=losses)


def _halved(_module: nn.Module, gradients: Any, _outputs: Any) -> Any:
    return tuple(g * 0.5 for g in gradients)


def hooks_of_the_users(steps: int) -> Outcome:
    """The user's own hooks change activations and gradients, before and after ours would look."""
    seed()
    model = mlp()
    model[0].register_forward_hook(lambda _m, _i, out: out * 1.5)
    model[3].register_full_backward_hook(_halved)
    for parameter in model.parameters():
        parameter.register_hook(lambda g: g.clamp(-0.1, 0.1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    optimizer.register_step_pre_hook(lambda *_: None)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        hidden = model[:2](torch.randn(4, FEATURES))
        hidden.register_hook(lambda g: g + 0.01)
        hidden.retain_grad()
        loss = F.cross_entropy(model[2:](hidden), torch.arange(4))
        loss.backward()
        optimizer.step()
        losses += [loss.detach(), hidden.grad]
    return _outcome([model], [optimizer], losses=losses)


def evaluation_and_average(steps: int) -> Outcome:
    """Evaluation under no_grad and inference_mode, an averaged copy of the model, a schedule, a frozen layer."""
    seed()
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES))
    model[0].requires_grad_(requires_grad=False)
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(torch.randn(4, FEATURES)), torch.arange(4))
        loss.backward()
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
                mine.lerp_(theirs, 0.1)
            losses.append(model.eval()(torch.ones(2, FEATURES)))
        with torch.inference_mode():
            losses.append(average.eval()(torch.ones(2, FEATURES)).clone())
        model.train()
        losses.append(loss.detach())
    return _outcome([model, average], [optimizer], losses=losses, scheduler=scheduler.state_dict())


def per_sample_gradients(steps: int) -> Outcome:
    """torch.func: modules are called with tensors that must not be looked into."""
    seed()
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def loss_of(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.func.functional_call(model, parameters, (x,))
        return out.square().sum()

    losses = []
    for _ in range(steps):
        x = torch.randn(4, FEATURES)
        named = {name: p.detach() for name, p in model.named_parameters()}
        each = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0))(named, x)
        for name, parameter in model.named_parameters():
            parameter.grad = each[name].mean(0)
        losses.append(torch.func.vmap(model)(x[:, None]).detach())
        optimizer.step()
    return _outcome([model], [optimizer], losses=losses)


def special_modules(steps: int) -> Outcome:
    """Lazy, parametrised, scripted and traced modules, and a sparse embedding."""
    seed()
    embedding = nn.Embedding(6, FEATURES, sparse=True)
    lazy = nn.LazyLinear(8)
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
    spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(8, CLASSES))
    model = nn.Sequential(lazy, nn.Tanh(), normed, spectral)
    model(torch.zeros(2, FEATURES))
    optimizers = [torch.optim.SparseAdam(embedding.parameters()), torch.optim.Adam(model.parameters(), lr=1e-2)]
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(model(embedding(torch.randint(6, (4,)))), torch.arange(4))
        for optimizer in optimizers:
            optimizer.zero_grad()
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.detach())
    return _outcome([embedding, model], optimizers, losses=losses)


def out_arguments(steps: int) -> Outcome:
    """Whole numbers and totals, in half and in FP32, that operations write to in place or as `out=`."""
    seed()
    model = nn.Linear(FEATURES, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    total, wide = torch.ones(8, dtype=torch.bfloat16), torch.ones(8)
    table, foreach = torch.ones(2, 8, dtype=torch.float16), [torch.ones(4, dtype=torch.bfloat16) for _ in range(2)]
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.randn(4, FEATURES)), torch.arange(4))
        loss.backward()
        optimizer.step()
        half = torch.randn(8).bfloat16()
        torch.add(half, wide, out=wide)
        torch.add(wide, half, alpha=0.5, out=wide)
        torch.mul(total, 0.9, out=total)
        torch.add(total, half, out=total)
        torch.add(half, total, out=total)
        torch.sub(total, half, alpha=0.25, out=total)
        torch.lerp(total, half, 0.5, out=total)
        torch.addcmul(total, half, half, value=0.5, out=total)
        torch.addcdiv(total, half, half, value=-0.5, out=total)
        total.mul_(0.5).add_(half, alpha=0.5)
        torch.mul(table[0], 0.5, out=table[1])
        torch.add(table[1], half.half(), out=table[0])
        torch._foreach_mul_(foreach, 0.5)
        torch._foreach_add_(foreach, [half[:4], half[4:]])
        kept = [total, wide, table, *foreach, *_whole_numbers()]
        losses += [loss.detach(), *(t.clone() for t in kept)]
    return _outcome([model], [optimizer], losses=losses)


def _whole_numbers() -> list[torch.Tensor]:
    x = torch.arange(600).bfloat16()
    other, counted = torch.empty_like(x), torch.ones(600).bfloat16()
    torch.add(x, 1, out=x)
    torch.mul(x, 2, out=x)
    torch.sub(x, 1, out=other)
    other.add_(3).mul_(5).sub_(x)
    whole = other.clone()
    whole.add_(1)
    torch.arange(600, out=other)
    other.cumsum_(0)
    torch.cumsum(counted, 0, out=counted)
    wide = torch.empty(600)
    torch.cumsum(counted, 0, dtype=torch.float32, out=wide)
    torch.add(counted, wide, out=wide)
    angles = torch.empty(600)
    torch.sin(wide, out=angles)
    narrow = torch.empty(2, 600, dtype=torch.float16).copy_(wide)
    return [x, other, counted, whole, wide, angles, narrow]


def evaluation_in_one_block(steps: int) -> Outcome:
    """A whole evaluation under one autocast block, first on a step that nobody examines."""
    seed()
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        with autocast("bf16"):
            loss = F.cross_entropy(model(torch.randn(4, FEATURES)).float(), torch.arange(4) % CLASSES)
        if step >= 5:
            with torch.no_grad(), autocast("bf16"):
                losses += [model(torch.randn(2, FEATURES)).float() for _ in range(3)]
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return _outcome([model], [optimizer], losses=losses)


LOOPS: dict[str, Callable[[int], Outcome]] = {
    f.__name__: f
    for f in (
        gan, by_hand, gradient_penalty, hooks_of_the_users, evaluation_and_average, per_sample_gradients,
        special_modules, out_arguments, evaluation_in_one_block,
    )
}  # fmt: skip


def _outcome(modules: list[Any], optimizers: list[torch.optim.Optimizer], **values: Any) -> Outcome:
    return Outcome.of(
        parameters=[p for m in modules for p in m.parameters()],
        buffers=[b for m in modules for b in m.buffers()],
        optimizers=[o.state_dict() for o in optimizers],
        **values,
    )
