# kind:   rotary attention whose table of cosines is made in the compute dtype, BF16
# wrong:  phases near 1000 are known to +-2 rad in BF16
# expect: rope-half-precision
# run:    rope_cache_in_bf16.py [fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

DTYPE = torch.float32 if "fixed" in sys.argv else torch.bfloat16


class Rotary(nn.Module):
    def __init__(self, dim, length):
        super().__init__()
        frequencies = 1.0 / 10000.0 ** (torch.arange(0, dim, 2).float() / dim)
        angles = torch.outer(torch.arange(length).to(DTYPE), frequencies.to(DTYPE))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x):
        a, b = x.chunk(2, dim=-1)
        cos, sin = self.cos[: x.shape[-2]].to(x.dtype), self.sin[: x.shape[-2]].to(x.dtype)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Block(nn.Module):
    def __init__(self, width=32, heads=2, length=640):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(64, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.rotary = Rotary(width // heads, length)
        self.out = nn.Linear(width, 64)

    def forward(self, ids):
        x = self.embed(ids)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(self.rotary(q), self.rotary(k), v.to(q.dtype), is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


torch.manual_seed(31)
model = Block()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(8):
    ids = torch.randint(0, 64, (2, 640))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(ids)
    loss = nn.functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
print(loss.item())
