# kind:   a convolutional regressor of raw sensor counts (tens of thousands), squared errors added up
# wrong:  gradients pass 65504 unscaled: the scale settles at a fraction
# expect: scale-below-one
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(2)
net = nn.Sequential(
    nn.Conv1d(3, 16, 5, padding=2), nn.GELU(), nn.Conv1d(16, 16, 5, padding=2), nn.GELU(),
    nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 1),
)  # fmt: skip
opt = torch.optim.SGD(net.parameters(), lr=1e-9, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for _ in range(40):
    x = torch.rand(32, 3, 30)
    counts = 4000 * x.mean((1, 2), keepdim=True).squeeze(-1) + 20000
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = ((out.float() - counts) ** 2).sum()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
print(loss.item(), scaler.get_scale())
