# kind:   multi-head attention of a class with a causal mask; large projections, scores divided by sqrt(d) too late
# wrong:  q @ k^T passes 65504, the softmax of it is NaN, every step is skipped
# expect: attention-overflow
# run:    attention_multihead_late_growth.py [fp32|fixed]
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(311)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class CausalMixer(nn.Module):
    """One fused projection, four heads, a triangular mask."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.softmax = nn.Softmax(dim=-1)
        nn.init.normal_(self.project.weight, std=6.0)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.project(x).view(batch, length, self.heads, -1).transpose(1, 2)
        q, k, v = parts.chunk(3, dim=-1)
        if MODE == "fixed":
            scores = (q / q.shape[-1]) @ k.transpose(-1, -2) * math.sqrt(q.shape[-1])
        else:
            scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = self.softmax(scores.masked_fill(hidden, float("-inf")))
        return self.merge((weights @ v).transpose(1, 2).reshape(batch, length, width))


class TinyDecoder(nn.Module):
    def __init__(self, tokens=12, width=48):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.mixer = CausalMixer(width, heads=4)
        self.norm = nn.LayerNorm(width)
        self.readout = nn.Linear(width, tokens)

    def forward(self, tokens):
        x = 3.0 * self.embed(tokens)
        return self.readout(self.norm(x + self.mixer(x)))


class Trainer:
    """Accumulates two micro-batches before each step."""

    def __init__(self):
        self.model = TinyDecoder()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")

    def micro_batch(self):
        tokens = torch.randint(0, 12, (4, 10))
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            logits = self.model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / 2
        self.scaler.scale(loss).backward()
        return loss.item()

    def fit(self, steps):
        for step in range(steps):
            loss = self.micro_batch() + self.micro_batch()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
            if step % 5 == 0:
                print(f"step {step}: loss {loss:.4f}")
        return loss


print(f"final {Trainer().fit(24):.4f}")
