# kind:   an EMA helper class that keeps its shadow weights in FP16 at a decay of 0.9999; a conv net in FP32
# wrong:  a ten-thousandth of the difference is below what FP16 resolves: the shadow stays at its first values
# expect: ema-half-stuck
# run:    ema_half_shadow_dict.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

SHADOW = torch.float16 if sys.argv[1:] == [] else torch.float32


class ModelEma:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: v.detach().to(SHADOW) for k, v in model.state_dict().items()}

    def update(self, model):
        for name, value in model.state_dict().items():
            if not value.is_floating_point():
                continue
            average = (1.0 - self.decay) * value.to(SHADOW) + self.decay * self.shadow[name]
            self.shadow[name] = average


class Trainer:
    def __init__(self):
        torch.manual_seed(310)
        self.model = nn.Sequential(nn.Conv1d(4, 16, 5, padding=2), nn.ReLU(), nn.Conv1d(16, 4, 5, padding=2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.ema = ModelEma(self.model, 0.9999)

    def fit(self, steps):
        for step in range(steps):
            x = torch.randn(16, 4, 24)
            loss = nn.functional.mse_loss(self.model(x), x.cumsum(dim=2).tanh())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.ema.update(self.model)
            if step % 50 == 0:
                print(f"step {step}: {loss.item():.4f}")
        print(f"final {loss.item():.4e}")


Trainer().fit(150)
