# kind:   a memory-saving bilinear layer as an autograd.Function, in a model that is trained with a decorated forward
# wrong:  its backward multiplies a BF16 gradient with an FP32 weight; uncaught
# expect: custom-function-dtype
# run:    custom_function_bilinear.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Product(torch.autograd.Function):
    """x w y, whose backward computes x w again instead of keeping it."""

    @staticmethod
    def forward(ctx, x, weight, y):
        ctx.save_for_backward(x, weight, y)
        return torch.matmul(torch.matmul(x, weight), y.transpose(-1, -2))

    @staticmethod
    def backward(ctx, gradient):
        x, weight, y = ctx.saved_tensors
        inner = torch.matmul(gradient, y)
        of_x = torch.matmul(inner, weight.t())
        of_weight = torch.matmul(x.flatten(0, 1).t(), inner.flatten(0, 1))
        of_y = torch.matmul(gradient.transpose(-1, -2), torch.matmul(x, weight))
        return of_x, of_weight, of_y


if MODE == "fixed":
    wide = torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    Product.forward = staticmethod(wide(Product.forward))
    Product.backward = staticmethod(torch.amp.custom_bwd(device_type="cpu")(Product.backward))


class Matcher(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.left, self.right = nn.Linear(6, width), nn.Linear(6, width)
        self.weight = nn.Parameter(0.1 * torch.randn(width, width))

    @torch.autocast("cpu", dtype=torch.bfloat16, enabled=MODE != "fp32")
    def forward(self, a, b):
        return Product.apply(self.left(a), self.weight, self.right(b)).float()


torch.manual_seed(504)
model = Matcher()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for _ in range(40):
    a = torch.randn(8, 5, 6)
    order = torch.stack([torch.randperm(5) for _ in range(8)])
    b = torch.gather(a, 1, order.argsort(1)[..., None].expand(-1, -1, 6))
    loss = nn.functional.cross_entropy(model(a, b).flatten(0, 1), order.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"final {loss.item():.4f}")
