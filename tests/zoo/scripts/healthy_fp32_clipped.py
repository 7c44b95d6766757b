# kind:   plain FP32 with tiny gradients and clipping, from a script whose AMP switch is off
# wrong:  nothing: the scaler and autocast are there but disabled, so clipping sees the gradients themselves
# expect: healthy
# run:    healthy_fp32_clipped.py
import torch
from torch import nn

torch.set_num_threads(1)

USE_AMP = False


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(8, 32), nn.Tanh())
        self.actor, self.critic = nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, state):
        features = self.features(state)
        return self.actor(features), self.critic(features).squeeze(1)


def update(model, optimizer, scaler, best):
    state = torch.randn(64, 8)
    with torch.autocast("cpu", dtype=torch.float16, enabled=USE_AMP):
        logits, value = model(state)
    policy = torch.distributions.Categorical(logits=logits)
    action = policy.sample()
    reward = (action == (state @ best).argmax(1)).float()
    advantage = reward - value.detach()
    loss = -(policy.log_prob(action) * advantage).mean()
    loss = loss + 0.5 * (value - reward).square().mean() - 1e-3 * policy.entropy().mean()
    optimizer.zero_grad()
    scaler.scale(1e-6 * loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=1e-7)
    scaler.step(optimizer)
    scaler.update()
    return reward.mean().item()


def main():
    torch.manual_seed(209)
    model, best = Policy(), torch.randn(8, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, eps=1e-12)
    scaler = torch.amp.GradScaler("cpu", enabled=USE_AMP)
    rewards = [update(model, optimizer, scaler, best) for _ in range(300)]
    for start in range(0, 300, 60):
        print(f"updates from {start}: reward {sum(rewards[start : start + 60]) / 60:.3f}")
    print(f"final {1 - sum(rewards[-60:]) / 60:.4e}")


if __name__ == "__main__":
    main()
