"""A policy network of a few dozen units under autocast: casting takes as long as computing."""
# expect: amp-slower

import torch
from torch import nn

torch.manual_seed(4)


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleList(nn.Linear(24, 24) for _ in range(6))
        self.out = nn.Linear(24, 4)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        for layer in self.body:
            state = torch.relu(layer(state)) + state
        return self.out(state)


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
for _ in range(60):
    state = torch.randn(16, 24)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = policy(state).float()
    loss = (value - state[:, :4]).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
