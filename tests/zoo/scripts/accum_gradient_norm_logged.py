# kind:   the gradient's norm is logged per micro-batch by a trainer that unscales for it
# wrong:  the first half of each batch is divided by the scale twice
# expect: accum-unscale-mixed
import torch
from torch import nn

torch.set_num_threads(1)


class Trainer:
    def __init__(self, net, halves=2):
        self.net, self.halves = net, halves
        self.opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        self.norms = []

    def log_norm(self):
        self.scaler.unscale_(self.opt)
        self.norms.append(sum(p.grad.norm() ** 2 for p in self.net.parameters()).sqrt().item())

    def batch(self, images, labels):
        self.opt.zero_grad(set_to_none=False)
        for x, y in zip(images.chunk(self.halves), labels.chunk(self.halves), strict=True):
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(self.net(x).float(), y) / self.halves
            self.scaler.scale(loss).backward()
            self.log_norm()
            last = loss.item()
            if len(self.norms) % self.halves == 0:
                self.scaler.step(self.opt)
            self.scaler.update()
        return last


torch.manual_seed(2)
net = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, 4))
trainer = Trainer(net)
for step in range(40):
    images = torch.randn(16, 3, 16, 16)
    loss = trainer.batch(images, images.mean((2, 3)).argmax(1))
    if step % 10 == 0:
        print(step, loss, trainer.norms[-1])
