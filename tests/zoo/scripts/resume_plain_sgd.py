# kind:   a trainer object is rebuilt from a state dict that was written before AMP came; SGD without momentum
# wrong:  the new scaler searches for its scale again, step after step thrown away
# expect: scaler-state-not-restored
import copy

import torch
from torch import nn

torch.set_num_threads(1)


class Trainer:
    def __init__(self, lr):
        self.model = nn.Sequential(nn.Conv1d(1, 8, 5), nn.ReLU(), nn.Flatten(), nn.Linear(96, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler("cpu")

    def state(self):
        return copy.deepcopy([self.model.state_dict(), self.optimizer.state_dict()])

    def restore(self, state):
        self.model.load_state_dict(state[0])
        self.optimizer.load_state_dict(state[1])

    def train(self, steps):
        for _ in range(steps):
            signal = torch.randn(32, 1, 16) * 10
            with torch.autocast("cpu", dtype=torch.float16):
                guess = self.model(signal)
            loss = nn.functional.mse_loss(guess.float(), signal[:, :, 3] * 4)
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return loss.item()


torch.manual_seed(19)
trainer = Trainer(lr=1e-4)
print(trainer.train(60))
state = trainer.state()
del trainer
trainer = Trainer(lr=1e-4)
trainer.restore(state)
print(trainer.train(40), trainer.scaler.get_scale())
