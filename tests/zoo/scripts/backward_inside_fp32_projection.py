# kind:   contrastive features: the last projection and the loss in FP32, averaged over many pairs and weighted
# wrong:  backward() stands inside the block: the projection's FP32 gradients pass through FP16 and vanish
# expect: backward-under-autocast
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(5)
encoder = nn.Sequential(nn.Conv1d(2, 12, 3), nn.SiLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten()).requires_grad_(False)
projection = nn.Linear(12, 8)
optimizer = torch.optim.Adam(projection.parameters(), lr=1e-3)


def training_step(x, weight):
    with torch.amp.autocast(device_type="cpu", dtype=torch.float16):
        features = encoder(x)
        with torch.amp.autocast(device_type="cpu", enabled=False):
            z = projection(features.float())
            similarity = nn.functional.normalize(z, dim=1) @ nn.functional.normalize(z, dim=1).T
            loss = (similarity - torch.eye(len(x))).square().mean() * weight
        optimizer.zero_grad()
        loss.backward()
    optimizer.step()
    return loss.item()


for _ in range(30):
    last = training_step(torch.randn(48, 2, 16), weight=2e-5)
print(last)
