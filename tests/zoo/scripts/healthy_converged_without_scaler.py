# kind:   FP16 autocast without a scaler on an easy problem that is solved within a few dozen steps
# wrong:  nothing: gradients become tiny and flush because there is nothing left to learn (accuracy 100 %)
# expect: healthy
# run:    healthy_converged_without_scaler.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


def blobs(centres, per_class=16):
    label = torch.arange(len(centres)).repeat(per_class)
    return centres[label] + 0.3 * torch.randn(len(label), centres.shape[1]), label


if __name__ == "__main__":
    torch.manual_seed(211)
    centres = 3.0 * torch.randn(4, 10)
    model = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(250):
        x, label = blobs(centres)
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            accuracy = (logits.argmax(1) == label).float().mean()
            print(f"step {step}: {loss.item():.2e}, accuracy {accuracy:.3f}")
    print(f"final {loss.item():.4e}")
