# kind:   FP8 training with delayed scaling: amax of the last 8 steps, and a margin of one power of two
# fine:   the scale follows amax, though activations grow by a factor of ten
# expect: healthy
from collections import deque

import torch
from torch import nn

torch.set_num_threads(1)


class Delayed:
    def __init__(self, dtype=torch.float8_e4m3fn):
        self.dtype, self.history = dtype, deque(maxlen=8)
        self.most = torch.finfo(dtype).max

    def __call__(self, x):
        self.history.append(x.detach().abs().amax())
        scale = self.most / 2 / max(self.history)
        return x + ((x.detach() * scale).to(self.dtype).to(x.dtype) / scale - x.detach())


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.of_input, self.of_weight = Delayed(), Delayed()

    def forward(self, x):
        weight = self.of_weight(self.linear.weight)
        return nn.functional.linear(self.of_input(x), weight, self.linear.bias)


torch.manual_seed(43)
model = nn.Sequential(Block(10, 48), nn.GELU(), Block(48, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(80):
    x = torch.randn(48, 10) * (1.0 + step / 8)
    loss = nn.functional.smooth_l1_loss(model(x), x.roll(1, dims=1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
