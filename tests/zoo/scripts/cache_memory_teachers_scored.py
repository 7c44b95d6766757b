# kind:   a small student is trained, then a panel of large teachers scores the test set in one block
# wrong:  half copies of all the teachers pile up, though each batch needs one of them at a time
# expect: autocast-cache-memory
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(12)


def teacher():
    return nn.Sequential(nn.Conv2d(3, 384, 1), nn.GELU(), nn.Conv2d(384, 384, 3, padding=1), nn.GELU())


student = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16, 32), nn.Tanh(), nn.Linear(32, 4))
panel = [teacher() for _ in range(14)]
optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
for _ in range(20):
    x = torch.randn(32, 3, 4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(student(x).float(), x.mean((2, 3)).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@torch.no_grad()
def score(batches):
    total = torch.zeros(len(panel))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for x in batches:
            for index, model in enumerate(panel):
                total[index] += model(x).float().mean()
    return total


print(f"student {loss.item():.4f}, teachers {score(torch.randn(3, 2, 3, 4, 4)).mean().item():.4f}")
