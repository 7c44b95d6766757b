# kind:   the FP32 loop's optimizer.step() survived the port to AMP, in another method
# wrong:  each Adam update is applied twice; the first overflow that the scaler skips goes into the weights
# expect: optimizer-stepped-twice
import torch
from torch import nn

torch.set_num_threads(1)


class Fit:
    def __init__(self):
        torch.manual_seed(31)
        self.net = nn.GRU(6, 24, batch_first=True)
        self.head = nn.Linear(24, 1)
        parameters = [*self.net.parameters(), *self.head.parameters()]
        self.opt = torch.optim.Adam(parameters, lr=1e-3)
        self.amp = torch.amp.GradScaler("cpu", init_scale=4096.0)

    def amp_step(self, loss):
        self.amp.scale(loss).backward()
        self.amp.unscale_(self.opt)
        torch.nn.utils.clip_grad_norm_(self.head.parameters(), 5.0)
        self.amp.step(self.opt)
        self.amp.update()

    def train(self, steps):
        for i in range(steps):
            x = torch.randn(8, 5, 6)
            with torch.autocast("cpu", dtype=torch.float16):
                states, _ = self.net(x)
                loss = (self.head(states[:, -1]).float() - x[:, -1, :1]).square().mean()
            self.opt.zero_grad()
            self.amp_step(loss)
            self.opt.step()
            if i % 20 == 0:
                print(i, loss.item())


Fit().train(60)
