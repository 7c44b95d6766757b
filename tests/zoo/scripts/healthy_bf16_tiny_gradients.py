# kind:   BF16 autocast without a scaler, gradients around 1e-10
# wrong:  nothing: BF16 has FP32's range, so what FP16 would flush is all there
# expect: healthy
# run:    healthy_bf16_tiny_gradients.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


class Autoencoder(nn.Module):
    def __init__(self, pixels=100):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(pixels, 32), nn.ELU(), nn.Linear(32, 6))
        self.decode = nn.Sequential(nn.Linear(6, 32), nn.ELU(), nn.Linear(32, pixels))

    @torch.autocast("cpu", dtype=torch.bfloat16, enabled=MODE != "fp32")
    def forward(self, x):
        return self.decode(self.encode(x))


def main():
    torch.manual_seed(208)
    basis = torch.randn(4, 100)
    data = torch.tanh(torch.randn(256, 4) @ basis)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-16)
    for epoch in range(25):
        for batch in data[torch.randperm(256)].split(64):
            optimizer.zero_grad()
            error = nn.functional.mse_loss(model(batch).float(), batch)
            (1e-7 * error).backward()  # one small term of a larger objective
            optimizer.step()
        if epoch % 5 == 0:
            print(f"epoch {epoch}: {error.item():.4f}")
    print(f"final {error.item():.4e}")


if __name__ == "__main__":
    main()
