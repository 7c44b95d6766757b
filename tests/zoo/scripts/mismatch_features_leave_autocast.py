# kind:   features are made under autocast, and the recurrent head behind it runs outside
# wrong:  the head's FP32 weights get BF16 input: "RNN input dtype does not match weight dtype", uncaught
# expect: dtype-mismatch
# run:    mismatch_features_leave_autocast.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"

torch.manual_seed(507)
encoder = nn.Sequential(nn.Linear(7, 20), nn.ReLU(), nn.Linear(20, 12))
head = nn.LSTM(12, 12, batch_first=True)
score = nn.Linear(12, 1)
parameters = [*encoder.parameters(), *head.parameters(), *score.parameters()]
optimizer = torch.optim.Adam(parameters, lr=3e-3)
for _ in range(40):
    series = torch.randn(16, 6, 7)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=MODE != "fp32"):
        features = encoder(series)
    if MODE == "fixed":
        features = features.float()
    states, _ = head(features)
    loss = nn.functional.mse_loss(score(states[:, -1]).squeeze(1), series.mean((1, 2)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"final {loss.item():.5f}")
