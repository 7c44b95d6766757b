# kind:   PPO that samples and updates in the same BF16 context, and is evaluated in FP32 after each iteration
# wrong:  nothing: the ratio is 1 until the policy moves
# expect: healthy
import torch
from torch import nn
from torch.distributions import Categorical

torch.set_num_threads(1)
torch.manual_seed(1)
policy = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 12))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
amp = torch.autocast("cpu", dtype=torch.bfloat16)


def log_prob(states, actions):
    with amp:
        logits = policy(states)
    return Categorical(logits=logits.float()).log_prob(actions)


for _ in range(8):
    states = torch.randn(64, 6)
    with torch.no_grad():
        with amp:
            logits = policy(states)
        actions = Categorical(logits=logits.float()).sample()
        old = log_prob(states, actions)
    rewards = (actions % 4 == 0).float()
    advantage = rewards - rewards.mean()
    for _ in range(3):
        ratio = (log_prob(states, actions) - old).exp()
        loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            greedy = policy(states).argmax(1)
print(loss.item(), (greedy % 4 == 0).float().mean().item())
