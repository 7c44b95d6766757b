# kind:   a mixture of experts trained under BF16 autocast; the accuracy on the same batch is taken in FP32
# wrong:  nothing: the two precisions never meet in a loss
# expect: healthy
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(10, 4) for _ in range(3))
        self.gate = nn.Linear(10, 3)

    def forward(self, x):
        scores = self.gate(x)
        weights = torch.exp(scores - scores.max(-1, keepdim=True).values.detach())
        weights = weights / weights.sum(-1, keepdim=True)
        return (torch.stack([e(x) for e in self.experts], -1) * weights[:, None]).sum(-1)


torch.manual_seed(7)
model = Mixture()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
x = torch.randn(96, 10)
y = (x[:, :4] * x[:, 4:8]).argmax(1)
for _ in range(40):
    model.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y).float().mean()
print(loss.item(), accuracy.item())
