# kind:   HEALTHY: a custom autograd.Function that says in which precision it works
# wrong:  nothing
# expect: healthy
# run:    healthy_custom_function_decorated.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "bf16"


class Affine(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.t() @ x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.weight = nn.Parameter(0.1 * torch.randn(4, 32))

    def forward(self, x):
        return Affine.apply(self.body(x), self.weight)


torch.manual_seed(506)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
for _ in range(100):
    x = torch.randn(64, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=MODE == "bf16"):
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"final {loss.item():.4f}")
