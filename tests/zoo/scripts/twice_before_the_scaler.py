# kind:   optimizer.step() and scaler.step(optimizer) one after the other, the plain one first
# wrong:  the first call applies scaled gradients, the second the same ones again
# expect: optimizer-stepped-twice
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(4)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 3))
opt = torch.optim.RMSprop(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
data = [(torch.randn(8, 1, 12, 12), torch.randint(0, 3, (8,))) for _ in range(5)]

for epoch in range(8):
    for images, labels in data:
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(images).float(), labels)
        scaler.scale(loss).backward()
        opt.step()
        scaler.step(opt)
        scaler.update()
    print(epoch, loss.item())
