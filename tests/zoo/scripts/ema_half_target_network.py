# kind:   Q-learning with a BF16 target network that follows the online one by _foreach_lerp_, tau = 0.001
# wrong:  the target never moves: a thousandth of the way is less than half a last place of BF16
# expect: ema-half-stuck
# run:    ema_half_target_network.py [fp32|fixed]
import copy
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
TARGET = torch.bfloat16 if MODE == "fault" else torch.float32
TAU = 0.001


def network():
    return nn.Sequential(nn.Linear(6, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 3))


@torch.no_grad()
def follow(target, online):
    weights = [p.to(TARGET) for p in online.parameters()]
    torch._foreach_lerp_(list(target.parameters()), weights, TAU)


def main():
    torch.manual_seed(311)
    online = network()
    target = copy.deepcopy(online).to(TARGET)
    optimizer = torch.optim.AdamW(online.parameters(), lr=1e-3)
    for step in range(200):
        state = torch.randn(64, 6)
        action = torch.randint(0, 3, (64, 1))
        reward = (state[:, 0] > 0).float() * (action[:, 0] == 1)
        with torch.no_grad():
            ahead = target((0.9 * state).to(TARGET)).float().amax(dim=1)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=MODE != "fp32"):
            value = online(state).gather(1, action).squeeze(1)
        loss = nn.functional.huber_loss(value.float(), reward + 0.9 * ahead)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        follow(target, online)
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")


if __name__ == "__main__":
    main()
