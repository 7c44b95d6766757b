# kind:   a healthy run that dies of something else: a broken row in the data, after 50 good steps
# wrong:  nothing with its precision: the script ends with a ValueError of its own
# expect: healthy
# run:    healthy_until_bad_row.py [fp32]
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


class Readings(Dataset):
    def __init__(self, rows):
        self.x = torch.randn(rows, 6)
        self.y = self.x.prod(dim=1, keepdim=True).tanh() + self.x[:, :1]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        if index == 50 * 32 + 7:
            raise ValueError(f"row {index} has no value in column 'pressure'")
        return self.x[index], self.y[index]


class Calibration(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 32), nn.Mish(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x)


if __name__ == "__main__":
    torch.manual_seed(217)
    model = Calibration()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    for step, (x, y) in enumerate(DataLoader(Readings(2000), batch_size=32)):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.l1_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 9:
            print(f"step {step + 1}: {loss.item():.4f}")
