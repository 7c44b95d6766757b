# kind:   an FP16 run on the CPU with the scaler of an old recipe, which is for CUDA unless told otherwise
# wrong:  torch switches the scaler off with one warning; small gradients are flushed
# expect: scaler-disabled
import torch
from torch import nn

torch.set_num_threads(1)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 32), nn.ELU(), nn.Linear(32, 8))
        self.decode = nn.Sequential(nn.Linear(8, 32), nn.ELU(), nn.Linear(32, 64))

    def forward(self, x):
        return self.decode(self.encode(x))


torch.manual_seed(0)
model = Autoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler()
basis = torch.randn(8, 64) * 0.0003
for _ in range(50):
    x = torch.randn(256, 8) @ basis
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(x), x)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(loss.item(), scaler.is_enabled())
