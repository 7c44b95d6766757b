# kind:   regression on raw prices, root mean square error written by hand in FP16
# wrong:  the squares of errors of some hundreds pass 65504: the loss is inf, its derivative 0; the network is fine
# expect: loss-overflow
# run:    loss_root_mean_square.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(23)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class RootMeanSquare(nn.Module):
    def forward(self, predicted, target):
        if MODE == "fixed":
            predicted, target = predicted.float(), target.float()
        error = predicted - target
        return (error**2).mean().sqrt()


net = nn.Sequential(nn.Linear(6, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 1))
criterion = RootMeanSquare()
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
rooms = torch.randn(256, 6)
price = 400.0 + 60.0 * rooms.sum(1, keepdim=True)


def closer(batch):
    x, y = rooms[batch], price[batch]
    with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
        out = net(x)
        return criterion(out, y.to(out.dtype))


for step in range(40):
    optimizer.zero_grad()
    loss = closer(torch.randint(0, 256, (32,)))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
print(f"final {loss.item():.4e}")
