# kind:   gradient penalty as in torch's AMP recipe: the gradients are divided by the scale first
# wrong:  nothing
# expect: healthy
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(75)
model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for _ in range(80):
    x = torch.randn(32, 10)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(x).float(), x[:, :1])
    scaled = torch.autograd.grad(scaler.scale(loss), model.parameters(), create_graph=True)
    inverse = 1.0 / scaler.get_scale()
    gradients = [g * inverse for g in scaled]
    norm = sum(g.square().sum() for g in gradients).sqrt()
    scaler.scale(loss + 0.1 * norm).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
