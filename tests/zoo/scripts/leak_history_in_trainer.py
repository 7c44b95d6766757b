"""A trainer keeps the history of its losses for a plot, with their graphs."""
# expect: memory-leak-across-steps

import torch
from torch import nn


class Regression:
    def __init__(self) -> None:
        torch.manual_seed(8)
        self.net = nn.GRU(4, 12, batch_first=True)
        self.head = nn.Linear(12, 1)
        parameters = [*self.net.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.RMSprop(parameters, lr=1e-3)
        self.history: list[torch.Tensor] = []

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        hidden, _ = self.net(x)
        loss = nn.functional.smooth_l1_loss(self.head(hidden[:, -1]), y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.history.append(loss)


run = Regression()
for _ in range(60):
    x = torch.randn(16, 7, 4)
    run.step(x, x.mean((1, 2))[:, None])
print([round(loss.item(), 3) for loss in run.history[::10]])
