"""Small images through thin convolutions in FP16 with a scaler, which takes longer than FP32."""
# expect: amp-slower

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(9)
    layers = [nn.Conv2d(1, 4, 3, padding=1), *(nn.Conv2d(4, 4, 3, padding=1) for _ in range(4))]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    opt, scaler = (torch.optim.SGD(net.parameters(), lr=0.05), torch.amp.GradScaler("cpu", init_scale=256.0))
    for _ in range(20):
        labels = torch.randint(0, 2, (8,))
        images = torch.randn(8, 1, 8, 8) + labels[:, None, None, None]
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(net(images), labels)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    print(loss.item())


main()
