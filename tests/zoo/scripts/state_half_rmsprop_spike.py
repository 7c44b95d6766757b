# kind:   BF16 weights and RMSprop with alpha = 0.999; a few outlier batches at the beginning
# wrong:  the running square stays at the outliers' level for ever: updates are too small for the rest of the run
# expect: optimizer-state-half
# run:    state_half_rmsprop_spike.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
DTYPE = torch.bfloat16 if MODE == "fault" else torch.float32


class Mixer(nn.Module):
    def __init__(self, series=16, width=32):
        super().__init__()
        self.over_time = nn.Conv1d(series, width, 3, padding=1)
        self.out = nn.Conv1d(width, series, 1)

    def forward(self, x):
        return self.out(nn.functional.gelu(self.over_time(x)))


def stream(steps):
    generator = torch.Generator().manual_seed(308)
    for step in range(steps):
        x = torch.randn(8, 16, 20, generator=generator)
        yield 30.0 * x if step < 6 else x


torch.manual_seed(308)
model = Mixer().to(DTYPE)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01, alpha=0.999)
for step, x in enumerate(stream(500)):
    optimizer.zero_grad()
    out = model(x.to(DTYPE)).float()
    loss = (out - x.roll(1, dims=2)).square().mean()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step}: {loss.item():.4f}")
print(f"final {loss.item():.4e}")
