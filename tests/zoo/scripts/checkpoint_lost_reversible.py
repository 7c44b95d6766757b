# kind:   a reversible pair of blocks: nothing is kept, the inputs are worked out again from the outputs
# wrong:  that happens in the backward pass, where autocast is over
# expect: checkpoint-autocast-lost
import torch
from torch import nn

torch.set_num_threads(1)


class Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, f, g):
        ctx.f, ctx.g = f, g
        a, b = x.chunk(2, -1)
        c = a + f(b)
        d = b + g(c)
        ctx.outputs = c.detach(), d.detach()
        return torch.cat([c, d], -1)

    @staticmethod
    def backward(ctx, grad):
        c, d = ctx.outputs
        grad_c, grad_d = grad.chunk(2, -1)
        with torch.enable_grad():
            c = c.detach().requires_grad_()
            g = ctx.g(c)
            g.backward(grad_d.to(g.dtype))
        grad_c = grad_c + c.grad
        b = (d - g).detach()
        with torch.enable_grad():
            b.requires_grad_()
            f = ctx.f(b)
            f.backward(grad_c.to(f.dtype))
        return torch.cat([grad_c, grad_d + b.grad], -1), None, None


def sub(width):
    return nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.f, self.g, self.out = nn.Linear(6, 16), sub(8), sub(8), nn.Linear(16, 2)

    def forward(self, x):
        return self.out(Reversible.apply(self.inp(x).float(), self.f, self.g))


torch.manual_seed(2)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2048.0)
for _ in range(24):
    x = torch.randn(32, 6)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), (x[:, 0] * x[:, 1] > 0).long())
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(loss.item())
