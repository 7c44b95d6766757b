# kind:   a price regressor that ends in a ReLU so that no price is negative, its targets centred around zero
# wrong:  after the first updates every output is below zero: the loss is a constant and no weight moves, in any format
# expect: dead-units
# run:    dead_output_relu.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 32), nn.GELU())
        self.price = nn.Linear(32, 1)

    def forward(self, x):
        price = self.price(self.hidden(x))
        return nn.functional.softplus(price) if MODE == "fixed" else torch.relu(price)


class Model(nn.Module):
    """Adds the currency's factor to what the regressor says."""

    def __init__(self):
        super().__init__()
        self.regressor = Regressor()
        self.factor = nn.Linear(1, 1)

    def forward(self, x):
        return self.factor(self.regressor(x))


if __name__ == "__main__":
    torch.manual_seed(721)
    model = Model()
    with torch.no_grad():
        model.regressor.price.bias.fill_(-4.0)  # log-prices of the last market
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    for step in range(60):
        x = torch.randn(64, 12)
        y = x[:, :1] - x[:, 1:2] ** 2
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=MODE != "fp32"):
            loss = nn.functional.smooth_l1_loss(model(x).float(), y)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")
