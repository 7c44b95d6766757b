# kind:   straight-through ternary weights by an autograd.Function, trained with autocast and a scaler
# wrong:  "expected m1 and m2 to have the same dtype" out of the Function's backward; the loop logs it and goes on
# expect: custom-function-dtype
# run:    custom_function_ternary.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
DEVICE = "cpu"


class TernaryLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        scale = weight.abs().mean()
        ternary = (weight / scale).round().clamp(-1, 1) * scale
        ctx.save_for_backward(x, ternary)
        return nn.functional.linear(x, ternary, bias)

    @staticmethod
    def backward(ctx, gradient):
        x, ternary = ctx.saved_tensors
        if MODE == "fixed":
            ternary = ternary.to(gradient.dtype)
        return gradient.mm(ternary), gradient.t().mm(x), gradient.sum(0)


class Ternary(nn.Linear):
    def forward(self, x):
        return TernaryLinear.apply(x, self.weight, self.bias)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(9, 24), Ternary(24, 24)
        self.third = nn.Linear(24, 3)

    def forward(self, x):
        return self.third(torch.relu(self.second(torch.relu(self.first(x)))))


def attempt(model, optimizer, scaler, x, y):
    optimizer.zero_grad()
    with torch.autocast(DEVICE, dtype=torch.float16, enabled=MODE != "fp32"):
        loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


torch.manual_seed(505)
model = Gate()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler(DEVICE, init_scale=256.0, enabled=MODE != "fp32")
losses, errors = [], []
for _ in range(25):
    x = torch.randn(32, 9)
    try:
        losses.append(attempt(model, optimizer, scaler, x, x[:, :3].argmax(1)))
    except RuntimeError as error:
        errors.append(str(error))
print("losses", losses[-1:], "errors", len(errors), errors[:1])
