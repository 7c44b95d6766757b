# kind:   a service that trains in the background: autocast is entered by the one who starts the thread
# wrong:  autocast is a thread's own: the training runs in FP32
# expect: autocast-not-active
import threading

import torch
from torch import nn


class Trainer(threading.Thread):
    def __init__(self, steps):
        super().__init__()
        self.model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.steps = steps

    def run(self):
        for _ in range(self.steps):
            x = torch.randn(16, 1, 8, 8)
            y = (x.mean((1, 2, 3)) * 20).long().clamp(-1, 1) + 1
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
        print("loss", loss.item())


torch.manual_seed(1)
trainer = Trainer(30)
with torch.autocast("cpu", dtype=torch.bfloat16):
    trainer.start()
    trainer.join()
