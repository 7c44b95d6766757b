# kind:   the model was called one line too early: only the loss is computed under autocast
# wrong:  every module runs in FP32
# expect: autocast-not-active
import torch
from torch import nn


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.LSTM(6, 20, batch_first=True)
        self.head = nn.Sequential(nn.LayerNorm(20), nn.Linear(20, 1))

    def forward(self, x):
        out, _ = self.body(x)
        return self.head(out[:, -1])


def step(model, batch, amp):
    x, y = batch
    prediction = model(x)
    with amp:
        return nn.functional.smooth_l1_loss(prediction, y)


torch.manual_seed(7)
model = Regressor()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
amp = torch.autocast("cpu", dtype=torch.bfloat16)
for _ in range(30):
    x = torch.randn(10, 5, 6)
    loss = step(model, (x, x.sum((1, 2))[:, None] / 5), amp)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("final", loss.item())
