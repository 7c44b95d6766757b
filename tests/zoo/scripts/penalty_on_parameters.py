# kind:   regression with a penalty on the norm of the parameters' gradients, from backward(create_graph=True)
# wrong:  what is in .grad is scaled, so the penalty is too, by the square of the scale
# expect: gradient-penalty-scaled
import warnings

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(73)
warnings.filterwarnings("ignore", message="Using backward")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(10, 32)
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


def train(net, steps, weight=1e-2):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    for step in range(steps):
        x = torch.randn(32, 10)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            guess = net(x)
        loss = nn.functional.mse_loss(guess.float(), x[:, :1])
        scaler.scale(loss).backward(create_graph=True)
        penalty = sum(p.grad.square().sum() for p in net.parameters())
        optimizer.zero_grad()
        scaler.scale(loss + weight * penalty).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0:
            print(step, loss.item(), penalty.item(), scaler.get_scale())


train(Net(), 60)
