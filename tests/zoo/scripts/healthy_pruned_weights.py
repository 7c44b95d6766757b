# kind:   a network pruned to a tenth of its weights, fine-tuned with the masks in place
# wrong:  nothing: nine tenths of the weights and of their gradients are zero, and stay so in every format
# expect: healthy
# run:    healthy_pruned_weights.py [fp32]
import sys

import torch
from torch import nn
from torch.nn.utils import prune

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"

if __name__ == "__main__":
    torch.manual_seed(734)
    model = nn.Sequential(nn.Linear(16, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 4))
    for layer in (model[0], model[2]):
        prune.l1_unstructured(layer, "weight", amount=0.9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    for step in range(100):
        x = torch.randn(64, 16)
        target = x[:, :4].argmax(1)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.cross_entropy(model(x), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")
