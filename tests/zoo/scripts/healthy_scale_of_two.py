# kind:   a dynamic scaler that has to go down to a small scale, still above 1, and stays there
# wrong:  nothing: the gradients fit
# expect: healthy
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(9)
net = nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 1))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
for _ in range(60):
    x = torch.randn(64, 12)
    y = 30.0 * x.sum(1, keepdim=True)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(net(x), y, reduction="sum")
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
