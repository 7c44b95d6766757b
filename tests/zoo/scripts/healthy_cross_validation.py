# kind:   folds of a cross-validation: model and optimizer are set back to their start, each fold has a new scaler
# wrong:  nothing: each new scaler calibrates itself, as a first one does
# expect: healthy
import copy

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(81)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
start = copy.deepcopy([model.state_dict(), optimizer.state_dict()])
for fold in range(3):
    model.load_state_dict(start[0])
    optimizer.load_state_dict(start[1])
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(40):
        x = torch.randn(64, 16) * 10
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            guess = model(x)
        loss = nn.functional.mse_loss(guess.float(), 3 * x.sum(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    print(fold, loss.item(), scaler.get_scale())
