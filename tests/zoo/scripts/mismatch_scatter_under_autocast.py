# kind:   messages of a graph network are written into an FP32 buffer by index under autocast
# wrong:  "index_add_(): self (Float) and source (Half) must have the same scalar type", uncaught
# expect: dtype-mismatch
# run:    mismatch_scatter_under_autocast.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Passing(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.message = nn.Linear(2 * width, width)
        self.change = nn.GRUCell(width, width)

    def forward(self, nodes, source, target):
        sent = self.message(torch.cat([nodes[source], nodes[target]], dim=1)).relu()
        received = torch.zeros(len(nodes), sent.shape[1])
        received.index_add_(0, target, sent.to(received.dtype) if MODE == "fixed" else sent)
        return self.change(received, nodes)


class Graph(nn.Module):
    def __init__(self, features=5, width=16, layers=2):
        super().__init__()
        self.into = nn.Linear(features, width)
        self.layers = nn.ModuleList(Passing(width) for _ in range(layers))
        self.out = nn.Linear(width, 2)

    def forward(self, features, source, target):
        nodes = self.into(features)
        for layer in self.layers:
            nodes = layer(nodes, source, target)
        return self.out(nodes)


class Fit:
    def __init__(self):
        self.model = Graph()
        self.optimizer = torch.optim.RAdam(self.model.parameters(), lr=2e-3)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=512.0, enabled=MODE != "fp32")

    def step(self):
        features = torch.randn(30, 5)
        source, target = torch.randint(0, 30, (2, 90))
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            logits = self.model(features, source, target)
        loss = nn.functional.cross_entropy(logits.float(), (features[:, 0] > 0).long())
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()


torch.manual_seed(506)
fit = Fit()
for _ in range(25):
    loss = fit.step()
print(f"final {loss:.4f}")
