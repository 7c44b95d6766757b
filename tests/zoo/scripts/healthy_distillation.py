# kind:   student and teacher: the teacher runs in eval mode under no_grad, the loss is a sum of two
# wrong:  nothing: the teacher has no gradients, and is not meant to
# expect: healthy
# run:    healthy_distillation.py [fp32]
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"
AMP = MODE != "fp32"


def network(width):
    return nn.Sequential(nn.Linear(20, width), nn.Hardswish(), nn.Dropout(0.1), nn.Linear(width, 10))


def both_losses(student, teacher, x, label, temperature=3.0):
    with torch.no_grad():
        wisdom = F.softmax(teacher(x).float() / temperature, dim=1)
    logits = student(x)
    hard = F.cross_entropy(logits, label)
    guess = F.log_softmax(logits.float() / temperature, dim=1)
    soft = F.kl_div(guess, wisdom, reduction="batchmean") * temperature**2
    return hard, soft


def main():
    torch.manual_seed(216)
    teacher, student = network(96).eval(), network(24)
    optimizer = torch.optim.NAdam(student.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", enabled=AMP)
    for step in range(120):
        x = torch.randn(48, 20)
        with torch.no_grad():
            label = teacher(x).argmax(dim=1)
        with torch.autocast("cpu", dtype=torch.float16, enabled=AMP):
            hard, soft = both_losses(student, teacher, x, label)
        optimizer.zero_grad()
        scaler.scale(0.3 * hard + 0.7 * soft).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 30 == 0:
            print(f"step {step}: hard {hard.item():.4f}, soft {soft.item():.4f}")
    print(f"final {0.3 * hard.item() + 0.7 * soft.item():.4e}")


if __name__ == "__main__":
    main()
