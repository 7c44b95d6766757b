# kind:   both losses are computed and clipped first, then each optimizer is stepped and the scaler updated
# wrong:  update() forgets that the critic's gradients were unscaled: they are divided twice on every step
# expect: scaler-update-mid-iteration
import torch
from torch import nn

torch.set_num_threads(1)


class Agent:
    def __init__(self):
        torch.manual_seed(23)
        self.actor = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
        self.critic = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step(self, states, actions, returns):
        with torch.autocast("cpu", dtype=torch.float16):
            value = self.critic(states).squeeze(1).float()
            chosen = self.actor(states).float().log_softmax(1).gather(1, actions[:, None])
        critic_loss = (value - returns).square().mean()
        actor_loss = -(chosen.squeeze(1) * (returns - value.detach())).mean()
        for opt in (self.actor_opt, self.critic_opt):
            opt.zero_grad()
        self.scaler.scale(critic_loss).backward()
        self.scaler.scale(actor_loss).backward()
        for opt, net in ((self.actor_opt, self.actor), (self.critic_opt, self.critic)):
            self.scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        self.scaler.step(self.actor_opt)
        self.scaler.update()
        self.scaler.step(self.critic_opt)
        self.scaler.update()
        return critic_loss.item()


agent = Agent()
for i in range(60):
    states = torch.randn(64, 6)
    loss = agent.step(states, torch.randint(0, 3, (64,)), states.sum(1))
    if i % 20 == 0:
        print(i, loss)
