# kind:   16-bit camera frames fed as they are; a norm after the first convolution hides that from FP32
# wrong:  one batch in four is bright: its convolution overflows FP16, that step is skipped at every loss scale
#         and the scale only ever falls
# expect: activation-overflow (consequence: scale-collapse)
# run:    collapse_raw_frames.py [fp32|fixed]
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


def frames(count):
    """Counts of a 16-bit sensor: a spot on the left or on the right, under dim or bright light."""
    label = torch.arange(count) % 2
    x = torch.arange(16.0)
    centre = torch.where(label == 0, 4.0, 11.0)[:, None] + torch.randn(count, 1)
    spot = torch.exp(-((x - centre) ** 2) / 8)[:, None, None, :].expand(-1, 1, 16, -1)
    light = torch.where(torch.arange(count) // 16 % 4 == 3, 60000.0, 300.0)
    noise = 0.8 * torch.rand(count, 1, 16, 16)
    image = (light[:, None, None, None] * (spot + noise)).clamp(max=65535).round()
    return image, torch.where(torch.rand(count) < 0.1, 1 - label, label)  # annotators err


class SpotFinder(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 5, padding=2, bias=False)
        self.norm = nn.GroupNorm(2, 8)
        self.body = nn.Sequential(nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU())
        self.head = nn.Linear(8 * 7 * 7, 2)

    def forward(self, image):
        if MODE == "fixed":
            image = image / 65535
        return self.head(self.body(self.norm(self.stem(image))).flatten(1))


if __name__ == "__main__":
    torch.manual_seed(108)
    model = SpotFinder()
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-3, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    loader = DataLoader(TensorDataset(*frames(256)), batch_size=16)
    finite = []
    for epoch in range(6):
        for image, label in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16, enabled=MODE != "fp32"):
                loss = nn.functional.cross_entropy(model(image), label)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            finite.append(loss.isfinite().item())
        skipped = len(finite) - sum(finite)
        print(f"epoch {epoch}: {loss.item():.4f} scale {scaler.get_scale():g} nonfinite {skipped}")
    print(f"final {loss.item():.4e}")
