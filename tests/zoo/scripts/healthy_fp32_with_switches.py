# kind:   fP32 on purpose: autocast and scaler are there and switched off, and one product is tried in BF16 for a metric
# wrong:  nothing: nothing of the training was meant to be half
# expect: healthy
import torch
from torch import nn

torch.manual_seed(5)
use_amp = torch.cuda.is_available() and False
model = nn.Sequential(nn.Linear(10, 32), nn.SiLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cuda", enabled=use_amp)
truth = torch.randn(10, 4)

for _ in range(40):
    x = torch.randn(32, 10)
    y = (x @ truth).argmax(1)
    optimizer.zero_grad()
    with torch.autocast("cuda", enabled=use_amp):
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        similarity = (logits.detach() @ logits.detach().T).float().mean()
print(loss.item(), similarity.item())
