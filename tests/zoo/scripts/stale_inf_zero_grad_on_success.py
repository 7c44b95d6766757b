# kind:   the gradients are cleared together with the counters of successful steps
# wrong:  the first overflow stays in .grad for ever; every later step is skipped with a perfectly finite loss
# expect: stale-inf-grads
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(9)
net = nn.Sequential(nn.Linear(12, 48), nn.SiLU(), nn.Linear(48, 1))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10)
taken = 0
for step in range(120):
    x = torch.randn(64, 12) * 4
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(net(x).float(), x.sum(1, keepdim=True))
    scaler.scale(loss).backward()
    before = scaler.get_scale()
    scaler.step(opt)
    scaler.update()
    if scaler.get_scale() >= before:
        taken += 1
        opt.zero_grad(set_to_none=True)
    if step % 20 == 0:
        print(step, loss.item(), scaler.get_scale(), taken)
