# kind:   pretrained weights are loaded and calibrated on; later the training is resumed with all three states
# wrong:  nothing
# expect: healthy
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(27)


def build():
    model = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), torch.amp.GradScaler("cpu")


def train(model, optimizer, scaler, steps):
    for _ in range(steps):
        x = torch.randn(64, 10) * 10
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.mse_loss(model(x).float(), 10 * x.sum(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


pretrained = build()[0].state_dict()
model, optimizer, scaler = build()
model.load_state_dict(pretrained)
train(model, optimizer, scaler, 50)
states = [part.state_dict() for part in (model, optimizer, scaler)]
parts = build()
for part, state in zip(parts, states, strict=True):
    part.load_state_dict(state)
train(*parts, 50)
print(scaler.get_scale(), parts[2].get_scale())
