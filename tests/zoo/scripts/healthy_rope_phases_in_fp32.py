# kind:   rotary and sine layers under BF16 autocast: phases of thousands in FP32, small ones in BF16
# fine:   sine and cosine are cast last, and phases of a few radians are held to a hundredth
# expect: healthy
import torch
from torch import nn

torch.set_num_threads(1)


class Siren(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.linear = nn.Linear(inputs, width)

    def forward(self, x):
        return torch.sin(4.0 * self.linear(x))


class Model(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.read = Siren(6, width)
        self.register_buffer("inv_freq", 1.0 / 10000.0 ** (torch.arange(0, width, 2) / width))
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        h = self.read(x)
        positions = torch.arange(x.shape[1], device=x.device)
        angles = torch.outer(positions.float(), self.inv_freq)
        cos, sin = angles.cos().to(h.dtype), angles.sin().to(h.dtype)
        a, b = h.chunk(2, dim=-1)
        return self.out(torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1))


torch.manual_seed(33)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for _ in range(20):
    x = torch.randn(2, 2000, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
    loss = nn.functional.mse_loss(out.float(), x[..., :3].cumsum(1).tanh())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
