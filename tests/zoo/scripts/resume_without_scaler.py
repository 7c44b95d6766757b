# kind:   a job that goes on from checkpoints on disk; they hold model, optimizer and step, and no scaler
# wrong:  the scale is back at 65536 and the first steps of the second leg are all skipped
# expect: scaler-state-not-restored
import tempfile
from pathlib import Path

import torch
from torch import nn

torch.set_num_threads(1)


def leg(path, steps):
    net = nn.GRU(8, 32, batch_first=True)
    head = nn.Linear(32, 1)
    model = nn.ModuleList([net, head])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu")
    first = 0
    if path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    for _ in range(steps):
        x = torch.randn(16, 6, 8)
        target = 300 * x[:, -1].sum(1, keepdim=True)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            states, _ = net(x)
            loss = nn.functional.mse_loss(head(states[:, -1]).float(), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": first + steps}
    torch.save(state, path)
    print(first + steps, loss.item(), scaler.get_scale())


torch.manual_seed(61)
with tempfile.TemporaryDirectory() as folder:
    leg(Path(folder) / "last.pt", 40)
    leg(Path(folder) / "last.pt", 40)
