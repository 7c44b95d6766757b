# kind:   PPO on a bandit with many arms: the policy samples under autocast, and is updated without it
# wrong:  old log-probabilities are FP16's, new ones FP32's: the ratio is not 1 before the first update
# expect: train-infer-dtype-mismatch
import torch
from torch import nn
from torch.distributions import Categorical

torch.set_num_threads(1)
torch.manual_seed(1)
policy = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 30))
with torch.no_grad():
    policy[2].weight.mul_(20.0)
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
for _ in range(8):
    states = torch.randn(64, 6)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        sampled = Categorical(logits=policy(states))
        actions = sampled.sample()
        old = sampled.log_prob(actions)
    rewards = (actions % 5 == 0).float() + 0.1 * states.mean(1)
    advantage = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    for _ in range(3):
        new = Categorical(logits=policy(states)).log_prob(actions)
        ratio = torch.exp(new - old)
        loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
