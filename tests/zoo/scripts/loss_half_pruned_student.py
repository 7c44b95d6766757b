# kind:   a pruned network is trained to agree with the one it was made of: KL divergence by hand on BF16 logits
# wrong:  log p - log q of nearly equal numbers near -7, where BF16 has steps of 0.03
# expect: loss-in-half
# run:    loss_half_pruned_student.py [fixed]
import copy
import sys

import torch
from torch import nn

torch.set_num_threads(1)

FIXED = "fixed" in sys.argv


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 500),
    )  # fmt: skip


@torch.no_grad()
def prune(model, share=0.05):
    for weight in model.parameters():
        if weight.ndim > 1:
            weight[weight.abs() < weight.abs().flatten().quantile(share)] = 0.0


class Recovery:
    def __init__(self, teacher):
        self.teacher = teacher.eval().requires_grad_(False)
        self.student = copy.deepcopy(teacher).train().requires_grad_(True)
        prune(self.student)
        self.student.eval()
        self.optimizer = torch.optim.RMSprop(self.student.parameters(), lr=1e-5)

    def divergence(self, images):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ours, theirs = self.student(images), self.teacher(images)
        if FIXED:
            ours, theirs = ours.float(), theirs.float()
        log_q = ours - ours.logsumexp(-1, keepdim=True)
        log_p = theirs - theirs.logsumexp(-1, keepdim=True)
        return (log_p.exp() * (log_p - log_q)).sum(-1).mean()

    def run(self, steps):
        for _ in range(steps):
            loss = self.divergence(torch.randn(32, 3, 12, 12))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            yield loss.item()


torch.manual_seed(11)
print(*(f"{loss:.2e}" for loss in Recovery(network()).run(12)))
