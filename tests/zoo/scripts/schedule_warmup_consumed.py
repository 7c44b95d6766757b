# kind:   linear warm-up over a dozen iterations, stepped on each, while the scaler looks for its scale
# wrong:  the warm-up is over before the first update: Adam starts at the full learning rate
# expect: scheduler-step-on-skipped
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(33)
model = nn.Sequential(nn.Embedding(30, 16), nn.Flatten(), nn.Linear(16 * 8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 12))
scaler = torch.amp.GradScaler("cpu")

for _ in range(80):
    tokens = torch.randint(0, 30, (32, 8))
    with torch.autocast("cpu", dtype=torch.float16):
        score = model(tokens)
    loss = nn.functional.mse_loss(score.float(), 100.0 * tokens.float().sum(1, keepdim=True))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    warmup.step()
print(loss.item(), scaler.get_scale())
