# kind:   Poisson regression, model.half() and no scaler: exp of a log rate of 11 and more is infinite in FP16
# wrong:  the negative log likelihood is inf from the first step on, and the weights with it; the network is fine
# expect: loss-overflow
# run:    loss_exp_rate_half_model.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(8)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
DTYPE = torch.float32 if MODE == "fp32" else torch.float16


class LogRate(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.GRUCell(5, 24)
        self.rate = nn.Linear(24, 1)
        nn.init.constant_(self.rate.bias, 10.5)
        nn.init.normal_(self.rate.weight, std=1.0)

    def forward(self, series):
        state = series.new_zeros(series.shape[1], 24)
        for moment in series:
            state = self.encode(moment, state)
        return self.rate(state).squeeze(-1)


def poisson_nll(log_rate, count):
    return (log_rate.exp() - count * log_rate).mean()


model = LogRate().to(DTYPE)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
series = torch.randn(4, 64, 5, dtype=DTYPE)
counts = torch.full((64,), 1e3, dtype=DTYPE)

step = 0
while step < 16:
    loss = poisson_nll(model(series), counts)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
    step += 1
