# kind:   an epoch is one autocast block: it was moved out of the inner loop to save time
# wrong:  all batches of an epoch see the weights of its first one; with shuffled batches the loss only jitters
# expect: autocast-stale-weight-cache
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(3))
        self.out = nn.Linear(72, 3)

    def forward(self, x):
        return self.out(self.features(x).flatten(1))


class Loop:
    def __init__(self):
        self.model = Classifier()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)

    def epoch(self, batches):
        total = 0.0
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for x, y in batches:
                self.optimizer.zero_grad(set_to_none=True)
                loss = F.cross_entropy(self.model(x).float(), y)
                loss.backward()
                self.optimizer.step()
                total += loss.item()
        return total / len(batches)


def main():
    torch.manual_seed(21)
    data = []
    for _ in range(12):
        x = torch.randn(16, 1, 9, 9)
        data.append((x, (x.mean((1, 2, 3)) * 10).long().clamp(-1, 1) + 1))
    loop = Loop()
    for epoch in range(3):
        print(epoch, loop.epoch(data))


main()
