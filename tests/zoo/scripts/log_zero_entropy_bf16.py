# kind:   policy gradient in BF16 without a scaler: a Bernoulli policy's log(1 - p), p from a sigmoid that rounds to 1
# wrong:  with 8 bits p is 1 from a logit of 6 on: the entropy is NaN at once, and so are the weights
# expect: log-of-zero-underflow
# run:    log_zero_entropy_bf16.py [fp32|fixed]
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(19)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"

policy = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 3))
with torch.no_grad():
    policy[2].weight.mul_(8.0)
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)


def log_probabilities(logits):
    if MODE == "fixed":
        return F.logsigmoid(logits.float()), F.logsigmoid(-logits.float())
    chance = logits.sigmoid()
    return chance.log(), (1.0 - chance).log()


for episode in range(12):
    state = 2 * torch.randn(128, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=MODE != "fp32"):
        logits = policy(state)
        log_on, log_off = log_probabilities(logits)
        on = logits.sigmoid()
        entropy = -(on * log_on + (1.0 - on) * log_off).mean()
        reward = (state[:, :3] > 0).float()
        action = (torch.rand(128, 3) < on.float()).float()
        taken = action * log_on + (1 - action) * log_off
        loss = -(taken.float() * (reward - 0.5)).mean() - 0.01 * entropy.float()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"episode {episode}: loss {loss.item():.4f}")
