# kind:   class counts up to 90000, pixel values, a ramp of loss weights and labels, all cast to BF16
# fine:   sizes, not names: rounding them by 0.4 % changes nothing that matters
# expect: healthy
import torch
from torch import nn

torch.set_num_threads(1)

torch.manual_seed(23)
images = torch.randint(0, 256, (96, 1, 12, 12), dtype=torch.uint8)
depth = torch.randint(0, 4096, (96, 1, 12, 12))
labels = torch.randint(0, 40, (96,))
counts = torch.randint(200, 90000, (40,))
ramp = torch.linspace(0.5, 1.0, 96).bfloat16()
late = (torch.arange(1000).bfloat16() / 1000)[torch.randint(0, 1000, (96,))]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 16, 3, stride=2)
        self.head = nn.Linear(16 * 25, 40)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).flatten(1))


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
class_weights = counts.bfloat16().reciprocal() * 1000
for _ in range(25):
    x = torch.cat([images.bfloat16() / 255, depth.bfloat16() / 4096], dim=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = net(x)
    losses = nn.functional.cross_entropy(logits.float(), labels, reduction="none")
    loss = (losses * class_weights[labels] * ramp * (1 + late)).mean()
    one_hot = nn.functional.one_hot(labels, 40).bfloat16()
    loss = loss + 0.1 * (logits.softmax(1) - one_hot).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
