# kind:   encoder and decoder have an optimizer each and one loss; update() is called after each step
# wrong:  whenever the scale grows or falls, the decoder's gradients are divided by the wrong scale
# expect: scaler-update-mid-iteration
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(17)
encoder = nn.Sequential(nn.Linear(20, 16), nn.GELU())
decoder = nn.Linear(16, 20)
optimizers = [torch.optim.AdamW(encoder.parameters(), lr=2e-3), torch.optim.SGD(decoder.parameters(), lr=0.05)]
scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=40)

for step in range(120):
    x = torch.randn(32, 20) @ torch.diag(torch.linspace(0.1, 1.0, 20))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(decoder(encoder(x)).float(), x)
    for optimizer in optimizers:
        optimizer.zero_grad()
    scaler.scale(loss).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
        scaler.update()
    if step % 30 == 0:
        print(step, loss.item())
