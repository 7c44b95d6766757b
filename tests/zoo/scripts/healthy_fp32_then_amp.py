# kind:   some steps in FP32 with optimizer.step(), then FP16 with a scaler, in the same loop
# wrong:  nothing
# expect: healthy
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(12)
net = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
optimizer.step()  # keeps the scheduler from complaining
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)

for i in range(80):
    amp = i >= 20
    x = torch.randn(32, 10)
    with torch.autocast("cpu", dtype=torch.float16, enabled=amp):
        loss = (net(x).float() - x[:, :1]).square().mean()
    optimizer.zero_grad()
    if amp:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
    scheduler.step()
