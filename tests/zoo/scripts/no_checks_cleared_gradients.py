# kind:   zero_grad was moved behind backward() when the loop was rewritten
# wrong:  scaler.step finds no gradient at all; the script reports it and stops
# expect: no-inf-checks
# run:    no_checks_cleared_gradients.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


def train(model, loader):
    optimizer = torch.optim.Adamax(model.parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=MODE != "fp32")
    for signal, label in loader:
        if MODE == "fixed":
            optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.cross_entropy(model(signal), label)
        scaler.scale(loss).backward()
        if MODE != "fixed":
            optimizer.zero_grad()
        scaler.step(optimizer)
        scaler.update()
    return loss.item()


torch.manual_seed(409)
net = nn.Sequential(
    nn.Conv1d(2, 8, 5, padding=2), nn.ReLU(), nn.Conv1d(8, 8, 5, stride=2), nn.ReLU(), nn.Flatten(),
    nn.Linear(8 * 14, 3),
)  # fmt: skip
loader = [(torch.randn(16, 2, 32), torch.randint(0, 3, (16,))) for _ in range(20)]
try:
    print("final", train(net, loader))
except AssertionError as error:
    print("failed:", error)
