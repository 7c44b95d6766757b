# kind:   torch.utils.checkpoint, reentrant and not, in FP16; each step begins with an evaluation in FP32
# wrong:  nothing: the recomputation is under the autocast of the forward pass
# expect: healthy
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(8, 24)
        self.first = nn.Sequential(nn.Linear(24, 24), nn.GELU())
        self.second = nn.Sequential(nn.Linear(24, 24), nn.GELU())
        self.out = nn.Linear(24, 3)

    def forward(self, x):
        x = self.inp(x)
        if self.training:
            x = checkpoint(self.first, x, use_reentrant=True)
            x = checkpoint(self.second, x, use_reentrant=False)
        else:
            x = self.second(self.first(x))
        return self.out(x)


torch.manual_seed(1)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for _ in range(25):
    x = torch.randn(24, 8)
    y = x[:, :3].argmax(1)
    net.eval()
    with torch.no_grad():
        accuracy = (net(x).argmax(1) == y).float().mean()
    net.train()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(loss.item(), accuracy.item())
