# kind:   GAN with two optimizers and one scaler; the generator's loss was forgotten when AMP was added
# wrong:  scaler.step(opt_g) divides by a scale that never multiplied: the generator stands still
# expect: unscaled-backward
# run:    unscaled_generator.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
AMP = MODE != "fp32"


def perceptron(size_in, size_out):
    return nn.Sequential(nn.Linear(size_in, 32), nn.LeakyReLU(0.2), nn.Linear(32, size_out))


def autocast():
    return torch.autocast("cpu", dtype=torch.float16, enabled=AMP)


def real_batch(count):
    return torch.tensor([2.0, -1.0]) + 0.5 * torch.randn(count, 2)


def main():
    torch.manual_seed(113)
    generator, critic = perceptron(8, 2), perceptron(2, 1)
    opt_g = torch.optim.SGD(generator.parameters(), lr=0.05, momentum=0.5)
    opt_d = torch.optim.SGD(critic.parameters(), lr=0.05, momentum=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0, enabled=AMP)
    bce = nn.BCEWithLogitsLoss()
    real_label, fake_label = torch.ones(64, 1), torch.zeros(64, 1)

    for step in range(150):
        fake = generator(torch.randn(64, 8))
        with autocast():
            loss_d = bce(critic(real_batch(64)), real_label)
            loss_d = loss_d + bce(critic(fake.detach()), fake_label)
        opt_d.zero_grad()
        scaler.scale(loss_d).backward()
        scaler.step(opt_d)

        with autocast():
            fake = generator(torch.randn(64, 8))
            loss_g = bce(critic(fake), real_label)
        opt_g.zero_grad()
        if MODE == "fixed":
            loss_g = scaler.scale(loss_g)
        loss_g.backward()
        scaler.step(opt_g)
        scaler.update()

        if step % 30 == 0:
            off = (fake.detach().float().mean(0) - torch.tensor([2.0, -1.0])).norm()
            print(f"step {step}: critic {loss_d.item():.3f}, distance to data {off:.3f}")

    with torch.no_grad():
        mean = generator(torch.randn(512, 8)).mean(0)
    print(f"final {(mean - torch.tensor([2.0, -1.0])).norm():.4e}")


if __name__ == "__main__":
    main()
