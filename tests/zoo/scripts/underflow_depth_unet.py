# kind:   dense regression, averaged over every pixel, micro-batch and rank, in FP16 without a GradScaler
# wrong:  only the last layers learn, depth stays blurred and the loss flattens; FP32 goes on
# expect: gradient-underflow
# run:    underflow_depth_unet.py [fp32|fixed]
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
ACCUMULATE = 2
WORLD_SIZE = 32  # this recipe adds the ranks' gradients up, so each rank divides by their number


def block(channels_in, channels_out, stride=1):
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, 3, stride, padding=1), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = block(1, width)
        self.down = block(width, 2 * width, stride=2)
        self.bottom = block(2 * width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.fuse = block(2 * width, width)
        self.depth = nn.Conv2d(width, 1, 1)

    def forward(self, image):
        skip = self.stem(image)
        x = self.up(self.bottom(self.down(skip)))
        return self.depth(self.fuse(torch.cat([x, skip], dim=1)))


def scenes(count):
    """Random images, and a depth (in units of 10 m) that depends on the neighbourhood."""
    image = torch.randn(count, 1, 24, 24)
    smooth = F.avg_pool2d(image, 5, stride=1, padding=2)
    return image, 0.04 * torch.tanh(3.0 * smooth)


def main():
    torch.manual_seed(101)
    model = UNet()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE == "fixed")
    image, depth = scenes(64)
    for step in range(60):
        optimizer.zero_grad()
        total = 0.0
        for micro in range(ACCUMULATE):
            rows = slice(8 * ((step * ACCUMULATE + micro) % 8), None)
            x, y = image[rows][:8], depth[rows][:8]
            with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
                loss = F.smooth_l1_loss(model(x), y)
            scaler.scale(loss / ACCUMULATE / WORLD_SIZE).backward()
            total += loss.item() / ACCUMULATE
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 9:
            print(f"step {step + 1}: loss {total:.3e}")
    print(f"final {total:.4e}")


if __name__ == "__main__":
    main()
