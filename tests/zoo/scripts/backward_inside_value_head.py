# kind:   an agent whose value head is kept in FP32 because returns are large; backward() stands inside the block
# wrong:  the head's gradients are cast to FP16 on the way back and overflow
# expect: backward-under-autocast
import torch
from torch import nn

torch.set_num_threads(1)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.torso = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.policy = nn.Linear(32, 4)
        self.value = nn.Linear(32, 1)

    def forward(self, x):
        h = self.torso(x)
        with torch.autocast("cpu", enabled=False):
            value = self.value(h.float())
        return self.policy(h), value


def main():
    torch.manual_seed(3)
    agent = Agent()
    optimizer = torch.optim.RMSprop(agent.parameters(), lr=1e-4)
    for _ in range(25):
        states, actions = torch.randn(128, 10), torch.randint(0, 4, (128,))
        returns = 3e4 * (1.0 + states.mean(1, keepdim=True))
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            logits, value = agent(states)
            critic = (value - returns).square().sum() / 8
            loss = nn.functional.cross_entropy(logits, actions) + critic
            loss.backward()
        norm = nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        if torch.isfinite(norm):
            optimizer.step()
    print(loss.item())


main()
