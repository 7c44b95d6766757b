# kind:   a convolutional net cast to FP16 as a whole and trained with RMSprop at its default eps
# wrong:  the running square of small gradients and eps are both 0 in FP16: the first step divides by zero
# expect: adam-eps-underflow
# run:    adam_eps_fp16_conv_rmsprop.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
DTYPE = torch.float32 if MODE == "fp32" else torch.float16


def block(inside, outside):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))


def main():
    torch.manual_seed(304)
    model = nn.Sequential(block(1, 8), block(8, 16), nn.Flatten(), nn.Linear(16 * 9, 10)).to(DTYPE)
    eps = 1e-3 if MODE == "fixed" else 1e-8
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, eps=eps)
    images = torch.rand(128, 1, 12, 12)
    digit = (images[:, 0, :5, :2].mean((1, 2)) * 10).long().clamp(0, 9)
    for epoch in range(6):
        for rows in torch.randperm(128).split(32):
            model.zero_grad()
            loss = nn.functional.cross_entropy(model(images[rows].to(DTYPE)).float(), digit[rows])
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


main()
