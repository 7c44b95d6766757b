# kind:   a GradScaler for its scale alone: gradients are divided, checked and stepped by code of the user's
# wrong:  nothing
# expect: healthy
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(8)

model = nn.Sequential(nn.Conv1d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 14, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)

for step in range(60):
    x = torch.randn(16, 3, 16)
    target = x.mean(2).argmax(1)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(x).float(), target)
    scaler.scale(loss).backward()
    for p in model.parameters():
        p.grad.div_(scaler.get_scale())
    if all(torch.isfinite(p.grad).all() for p in model.parameters()):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
