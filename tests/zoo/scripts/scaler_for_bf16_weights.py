# kind:   weights, activations and gradients in BF16, optimizer with large steps; the loop came from an FP16 recipe
# wrong:  the GradScaler was left in
# expect: scaler-unneeded
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, stride=2)
        self.body = nn.Conv2d(8, 16, 3, stride=2)
        self.head = nn.Linear(64, 5)

    def forward(self, x):
        return self.head(F.relu(self.body(F.relu(self.stem(x)))).flatten(1))


def train(steps=30):
    torch.manual_seed(4)
    model = Net().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(steps):
        images = torch.randn(16, 1, 12, 12)
        labels = (images.mean((1, 2, 3)) * 15).long().clamp(-2, 2) + 2
        loss = F.cross_entropy(model(images.bfloat16()).float(), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        model.zero_grad()
    print(loss.item(), scaler.get_scale())


train()
