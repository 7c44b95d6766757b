# kind:   gradients are clipped on every micro-batch, so unscale_ is too, and update() keeps it from complaining
# wrong:  only the last of four micro-batches counts
# expect: accum-unscale-mixed
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(44)
ACCUMULATE = 4
model = nn.Sequential(nn.Embedding(40, 24), nn.Flatten(), nn.Linear(24 * 6, 64), nn.ReLU(), nn.Linear(64, 40))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2048.0)

for i in range(120):
    tokens = torch.randint(0, 40, (8, 6))
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(tokens)
    loss = nn.functional.cross_entropy(logits.float(), tokens[:, 2]) / ACCUMULATE
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if (i + 1) % ACCUMULATE == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    else:
        scaler.update()
