# kind:   a denoiser cast by .half() to save memory, fed with FP32 images and no autocast
# wrong:  the first convolution refuses its input; the script catches it and says that it gives up
# expect: dtype-mismatch
# run:    mismatch_half_unet.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Denoiser(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.middle = nn.Sequential(nn.GroupNorm(2, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))
        self.up = nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1)

    def forward(self, noisy):
        low = self.down(noisy)
        return noisy - self.up(low + self.middle(low))


def main():
    torch.manual_seed(505)
    model = Denoiser()
    if MODE == "fault":
        model.half()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    clean = torch.rand(12, 3, 16, 16)
    loss = None
    try:
        for _ in range(30):
            noisy = clean + 0.1 * torch.randn_like(clean)
            if MODE == "fixed":
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    guess = model(noisy)
            else:
                guess = model(noisy)
            loss = nn.functional.l1_loss(guess.float(), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    except RuntimeError as error:
        print("giving up:", error)
        return
    print(f"final {loss.item():.4f}")


main()
