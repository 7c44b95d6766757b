# kind:   two towers of a matching model, run side by side in a pool of threads; the loss is made where autocast is on
# wrong:  the pool's threads start without autocast: both towers run in FP32
# expect: autocast-not-active
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

torch.manual_seed(3)


class Tower(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(4, width, 3, padding=1)
        self.norm = nn.BatchNorm1d(width)
        self.out = nn.Linear(width, 16)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.conv(x))).mean(-1))


def main():
    left, right = Tower(24), Tower(32)
    optimizer = torch.optim.AdamW([*left.parameters(), *right.parameters()], lr=2e-3)
    with ThreadPoolExecutor(2) as pool:
        for step in range(25):
            a = torch.randn(12, 4, 20)
            b = a + 0.1 * torch.randn_like(a)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                first, second = pool.submit(left, a), pool.submit(right, b)
                scores = first.result() @ second.result().T / 4.0
                loss = nn.functional.cross_entropy(scores.float(), torch.arange(12))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if step % 8 == 0:
                print(step, float(loss))


main()
