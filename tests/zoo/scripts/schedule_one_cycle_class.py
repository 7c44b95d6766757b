# kind:   one-cycle schedule of a short fine-tuning in a trainer class, advanced before update()
# wrong:  a good part of the rise is gone when the first step is taken
# expect: scheduler-step-on-skipped
import torch
from torch import nn

torch.set_num_threads(1)


class FineTune:
    def __init__(self, net, steps):
        self.net = net
        self.opt = torch.optim.SGD(net.parameters(), lr=1e-6, momentum=0.9)
        first = torch.optim.lr_scheduler.LinearLR(self.opt, 0.05, 1.0, total_iters=15)
        rest = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, steps - 15)
        self.schedule = torch.optim.lr_scheduler.SequentialLR(self.opt, [first, rest], [15])
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17)

    def __call__(self, image, depth):
        self.net.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            guess = self.net(image)
        loss = (guess.float() - depth).square().mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.opt)
        self.schedule.step()
        self.scaler.update()
        return loss.item()


torch.manual_seed(52)
step = FineTune(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 1, 3)), 60)
for i in range(60):
    image = torch.randn(4, 3, 12, 12) * 5
    loss = step(image, 90 * image.mean(1, keepdim=True)[:, :, 2:-2, 2:-2])
    if i % 20 == 0:
        print(i, loss, step.scaler.get_scale())
