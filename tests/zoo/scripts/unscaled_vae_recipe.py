# kind:   scaler.scale(loss) called as if it worked in place: its result is dropped, the bare loss goes backward
# wrong:  every gradient is divided by 65536, nothing moves; a fused optimizer does the division itself
# expect: unscaled-backward
# run:    unscaled_vae_recipe.py [fp32|fixed]
import argparse

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


class VAE(nn.Module):
    def __init__(self, pixels=64, latent=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(pixels, 48), nn.ReLU())
        self.mean = nn.Linear(48, latent)
        self.log_variance = nn.Linear(48, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, 48), nn.ReLU(), nn.Linear(48, pixels))

    def forward(self, image):
        code = self.encoder(image)
        mean, log_variance = self.mean(code).float(), self.log_variance(code).float()
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decoder(z), mean, log_variance


def bars(count):
    """8x8 images with one bright row or column."""
    image = torch.zeros(count, 8, 8)
    place = torch.randint(0, 8, (count,))
    upright = torch.rand(count) < 0.5
    rows = torch.arange(count)
    image[rows[upright], :, place[upright]] = 1.0
    image[rows[~upright], place[~upright], :] = 1.0
    return image.flatten(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", nargs="?", default="fault")
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    torch.manual_seed(114)

    model = VAE()
    optimizer = torch.optim.SGD(model.parameters(), lr=5e-3, momentum=0.9, fused=True)
    scaler = torch.amp.GradScaler("cpu", enabled=args.mode != "fp32")
    for step in range(args.steps):
        image = bars(32)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=args.mode != "fp32"):
            logits, mean, log_variance = model(image)
            reconstruction = F.binary_cross_entropy_with_logits(logits, image, reduction="sum")
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
        loss = (reconstruction + 0.1 * divergence) / len(image)
        if args.mode == "fixed":
            loss = scaler.scale(loss)
        else:
            scaler.scale(loss)
        loss.backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 30 == 0:
            print(f"step {step}: {reconstruction.item() / 32:.3f} + {divergence.item() / 32:.3f}")
    print(f"final {(reconstruction.item() + 0.1 * divergence.item()) / 32:.4e}")


if __name__ == "__main__":
    main()
