# kind:   one recipe for all dtypes: with BF16 the scaler is there, and switched off
# wrong:  nothing
# expect: healthy
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(8)
dtype = torch.bfloat16
model = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
head = nn.Linear(16, 3)
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", enabled=dtype is torch.float16)
for _ in range(30):
    x = torch.randn(8, 6, 16)
    y = x[:, 0, :3].argmax(1)
    with torch.autocast("cpu", dtype=dtype):
        loss = nn.functional.cross_entropy(head(model(x)[:, 0]), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print(loss.item())
