# kind:   a fully convolutional net with a sigmoid after each of its layers, Adam and a GradScaler
# wrong:  the first kernels' gradients are zero in FP16, and in FP32 a millionth of Adam's epsilon: neither learns
# expect: vanishing-gradient
# run:    vanishing_sigmoid_cnn_adam.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


def block(channels):
    squash = nn.ReLU() if MODE == "fixed" else nn.Sigmoid()
    conv = nn.Conv2d(channels, channels, 3, padding=1)
    if MODE == "fixed":
        nn.init.kaiming_normal_(conv.weight)
    else:
        nn.init.normal_(conv.weight, std=0.01)
    return nn.Sequential(conv, squash)


class Segmenter(nn.Module):
    def __init__(self, channels=6, depth=11):
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, padding=1)
        self.body = nn.Sequential(*(block(channels) for _ in range(depth)))
        self.head = nn.Conv2d(channels, 1, 1)

    def forward(self, image):
        return self.head(self.body(self.stem(image)))


def images(count, size=8):
    image = torch.rand(count, 1, size, size)
    blurred = nn.functional.avg_pool2d(image, 3, 1, 1)
    return image, (blurred > 0.5).float()


if __name__ == "__main__":
    torch.manual_seed(712)
    model = Segmenter()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    criterion = nn.BCEWithLogitsLoss()
    for step in range(60):
        image, mask = images(8)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16, enabled=MODE != "fp32"):
            logits = model(image)
        loss = criterion(logits.float(), mask)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")
