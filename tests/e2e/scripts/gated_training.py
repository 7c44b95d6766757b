"""A tiny language model in FP16 that trains in seconds on a CPU, and pull requests that change it.

`python gated_training.py [MUTATION] [--seed N]`. The loss has a small weight, as auxiliary losses have, so that its
gradients need the loss scale.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, LENGTH, WIDTH, BATCH = 128, 16, 64, 32
STEPS = 40
LOSS_WEIGHT = 1e-3


class Norm(nn.Module):
    """Divides by the root mean square; in half where it is told to."""

    def __init__(self, half):
        super().__init__()
        self.half_precision = half
        self.gain = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        if self.half_precision:
            with torch.autocast("cpu", enabled=False):
                x = x.half() * 256
                return (x * x.pow(2).mean(-1, keepdim=True).rsqrt()) * self.gain.half()
        return F.rms_norm(x.float(), (WIDTH,)) * self.gain


class Block(nn.Module):
    def __init__(self, half):
        super().__init__()
        self.norm = Norm(half)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Refactored(Block):
    """The same, written in another way."""

    def forward(self, x):
        hidden = self.norm(x)
        hidden = self.up(hidden)
        hidden = F.gelu(hidden)
        return torch.add(self.down(hidden), x)


class Model(nn.Module):
    def __init__(self, mutation):
        super().__init__()
        block = Refactored if mutation == "refactored" else Block
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        blocks = nn.Sequential(*(block(mutation == "op-in-half" and i == 0) for i in range(2)))
        self.layers = "body" if mutation == "module-renamed" else "blocks"
        setattr(self, self.layers, blocks)
        self.norm = Norm(False)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        if mutation == "init-shrunk":
            with torch.no_grad():
                self.head.weight.mul_(2.0**-12)

    def forward(self, tokens):
        return self.head(self.norm(getattr(self, self.layers)(self.embedding(tokens))))


def batches(size, seed):
    """Sequences in which a token follows from the one before, nine times of ten."""
    generator = torch.Generator().manual_seed(seed)
    follower = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(1))
    while True:
        tokens = torch.randint(VOCABULARY, (size, LENGTH + 1), generator=generator)
        for i in range(LENGTH):
            follows = torch.rand(size, generator=generator) < 0.9
            tokens[:, i + 1] = torch.where(follows, follower[tokens[:, i]], tokens[:, i + 1])
        yield tokens


def train(mutation="", seed=0, watch=None):
    torch.manual_seed(seed)
    model = Model(mutation)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.3 if mutation == "lr-x100" else 3e-3, eps=1e-12)
    dtype = torch.bfloat16 if mutation == "bf16" else torch.float16
    scaled = mutation not in {"scale-removed", "bf16"}
    scale = 2.0**4 if mutation == "scale-lowered" else 2.0**16
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scaled)
    data = batches(BATCH // 2 if mutation == "batch-halved" else BATCH, seed)

    def loop():
        for step in range(STEPS):
            tokens = next(data)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=dtype):
                logits = model(tokens[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            scaler.scale(loss * LOSS_WEIGHT).backward()
            if mutation == "clip-before-unscale":
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            else:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            if step % 10 == 9:
                print(f"step {step + 1}  loss {loss.item():.3f}", flush=True)

    if watch is None:
        loop()
    else:
        with watch(model, optimizer=optimizer, scaler=scaler):
            loop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("mutation", nargs="?", default="")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    train(arguments.mutation, arguments.seed)
