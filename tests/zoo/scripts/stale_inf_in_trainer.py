# kind:   a trainer whose `advance` clears, schedules and counts, and is called for steps that were taken only
# wrong:  after one overflow nothing is ever cleared again
# expect: stale-inf-grads
import torch
from torch import nn

torch.set_num_threads(1)


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu")
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 100)
        self.global_step = 0

    def advance(self):
        self.schedule.step()
        self.global_step += 1
        self.model.zero_grad()

    def fit(self, batches):
        for signal, target in batches:
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.smooth_l1_loss(self.model(signal).float(), target)
            self.scaler.scale(loss * 30).backward()
            before = self.scaler.get_scale()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if before <= self.scaler.get_scale():
                self.advance()


def batches(count):
    for _ in range(count):
        signal = torch.randn(16, 2, 20) * 3
        yield signal, signal.mean((1, 2)).unsqueeze(1)


torch.manual_seed(14)
trainer = Trainer(nn.Sequential(nn.Conv1d(2, 8, 5), nn.ReLU(), nn.Flatten(), nn.Linear(128, 1)))
trainer.fit(batches(70))
print(trainer.global_step, "steps")
