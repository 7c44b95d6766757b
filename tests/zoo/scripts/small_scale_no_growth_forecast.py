# kind:   GradScaler(init_scale=1, growth_interval=huge), "so that it skips no step"
# wrong:  a forecast of daily returns of 2 %: gradients flush at scale 1, and the scale may not grow
# expect: loss-scale-too-small
# run:    small_scale_no_growth_forecast.py [fp32|fixed]
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(104)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
ASSETS, HISTORY, ACCUMULATE = 8, 12, 2
VOLATILITY = 0.02

layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
model = nn.Sequential(
    nn.Linear(ASSETS, 32), nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(32, ASSETS)
)
settings = {"init_scale": 1.0, "growth_interval": 10**7} if MODE == "fault" else {}
scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32", **settings)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
criterion = nn.HuberLoss()

mixing = torch.randn(ASSETS, ASSETS) / ASSETS**0.5
signal = torch.randn(256, HISTORY, ASSETS)
returns = VOLATILITY * torch.tanh(signal @ mixing)
loader = DataLoader(TensorDataset(signal, returns), batch_size=32, shuffle=True)

for epoch in range(20):
    epoch_loss = 0.0
    for index, (x, y) in enumerate(loader):
        with torch.amp.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            loss = criterion(VOLATILITY * model(x), y) / ACCUMULATE
        scaler.scale(loss).backward()
        epoch_loss += loss.item() * ACCUMULATE / len(loader)
        if (index + 1) % ACCUMULATE == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
    if epoch % 5 == 4:
        print(f"epoch {epoch + 1}: {epoch_loss:.3e} at scale {scaler.get_scale():g}")
print(f"final {epoch_loss:.4e}")
