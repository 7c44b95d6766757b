# kind:   a warm-up of 2000 iterations, of which the scaler's first backoffs take seven, and a rate cut per epoch
# wrong:  nothing to speak of
# expect: healthy
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(35)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
bias = nn.Parameter(torch.zeros(1))
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
side = torch.optim.SGD([bias], lr=1e-5)
warmup = torch.optim.lr_scheduler.LambdaLR(opt, lambda n: min(1.0, (n + 1) / 2000))
per_epoch = torch.optim.lr_scheduler.ExponentialLR(side, 0.5)
scaler = torch.amp.GradScaler("cpu")
for _ in range(4):
    for _ in range(20):
        x = torch.randn(64, 8) * 10
        opt.zero_grad()
        side.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            guess = net(x)
        loss = nn.functional.mse_loss(guess.float() + bias, 10 * x.sum(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.step(side)
        scaler.update()
        warmup.step()
    per_epoch.step()
print(loss.item(), scaler.get_scale())
