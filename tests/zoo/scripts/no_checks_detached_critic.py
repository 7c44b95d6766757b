# kind:   actor and critic with an optimizer each; the critic's value is detached where its loss is made
# wrong:  scaler.step(critic's optimizer) raises "No inf checks were recorded" on the first step, uncaught
# expect: no-inf-checks
# run:    no_checks_detached_critic.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Agent:
    def __init__(self, seen=6, actions=3):
        self.actor = nn.Sequential(nn.Linear(seen, 16), nn.Tanh(), nn.Linear(16, actions))
        self.critic = nn.Sequential(nn.Linear(seen, 16), nn.Tanh(), nn.Linear(16, 1))
        self.of_actor = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.of_critic = torch.optim.RMSprop(self.critic.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, enabled=MODE != "fp32")

    def learn(self, state, action, gain):
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            log_p = self.actor(state).float().log_softmax(-1)
            value = self.critic(state).float().squeeze(-1)
        advantage = gain - value.detach()
        policy = -(log_p.gather(1, action[:, None]).squeeze(1) * advantage).mean()
        judged = value if MODE == "fixed" else value.detach()
        fit = nn.functional.mse_loss(judged, gain)
        self.of_actor.zero_grad()
        self.of_critic.zero_grad()
        self.scaler.scale(policy + fit).backward()
        self.scaler.step(self.of_actor)
        self.scaler.step(self.of_critic)
        self.scaler.update()
        return policy.item(), fit.item()


torch.manual_seed(409)
agent = Agent()
for _ in range(30):
    state = torch.randn(64, 6)
    action = torch.randint(0, 3, (64,))
    print(*agent.learn(state, action, state[:, 0] * (action == 1)))
