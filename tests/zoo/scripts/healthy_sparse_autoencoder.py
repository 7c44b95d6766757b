# kind:   a sparse autoencoder: 512 features with a negative bias, of which a sample uses a handful
# wrong:  nothing: 97 % of the activations and of their gradients are zero by design, and many features rest
# expect: healthy
# run:    healthy_sparse_autoencoder.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


class SparseAutoencoder(nn.Module):
    def __init__(self, width=24, features=512):
        super().__init__()
        self.encode = nn.Linear(width, features)
        self.decode = nn.Linear(features, width)
        nn.init.constant_(self.encode.bias, -1.0)

    def forward(self, x):
        features = torch.relu(self.encode(x))
        return self.decode(features), features


if __name__ == "__main__":
    torch.manual_seed(723)
    model = SparseAutoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    directions = torch.randn(40, 24)
    for step in range(100):
        code = torch.rand(128, 40) * (torch.rand(128, 40) < 0.05)
        x = code @ directions
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16, enabled=MODE != "fp32"):
            rebuilt, features = model(x)
            loss = nn.functional.mse_loss(rebuilt.float(), x) + 1e-3 * features.float().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f} zero {(features == 0).float().mean():.3f}")
    print(f"final {loss.item():.4e}")
