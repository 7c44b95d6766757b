# kind:   a detector's box loss, written by hand and averaged over the objects of the batch, one of which has none
# wrong:  0/0 once, without a scaler to skip it: all weights are NaN from then on
# expect: nan-not-precision
# run:    nan_no_boxes_in_batch.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


def box_loss(predicted, boxes, present):
    error = (predicted - boxes).abs().sum(-1)
    error = torch.where(error < 1.0, 0.5 * error**2, error - 0.5)
    objects = present.sum()
    if MODE == "fixed":
        objects = objects.clamp(min=1)
    return (error * present).sum() / objects


def main():
    torch.manual_seed(61)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2), nn.GELU(), nn.Conv2d(8, 16, 3, stride=2), nn.GELU(), nn.Flatten(),
        nn.Linear(144, 12),
    )  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for step in range(45):
        present = (torch.rand(6, 3) < 0.4).float() * float(step != 26)
        boxes = torch.rand(6, 3, 4)
        image = torch.randn(6, 1, 16, 16) + boxes.sum((1, 2))[:, None, None, None]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=MODE != "fp32"):
            out = net(image)
        loss = box_loss(out.float().view(6, 3, 4), boxes, present)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 14:
            print(f"step {step + 1}: {loss.item():.4f}")


main()
