# kind:   a detector with a scaler of its own, stepped every fourth round, whose loss is -log(1 - sigmoid(logit))
# wrong:  its first skips are calibration, with finite losses; then the sigmoid rounds to 1, and every step is skipped
# expect: log-of-zero-underflow
# run:    log_zero_detector_by_turns.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
AMP = MODE != "fp32"

torch.manual_seed(315)
forecast = nn.Sequential(nn.Linear(6, 24), nn.SiLU(), nn.Linear(24, 1))
detector = nn.Sequential(nn.Linear(7, 32), nn.GELU(), nn.Linear(32, 1))
optimizers = {
    "forecast": torch.optim.Adam(forecast.parameters(), lr=2e-3),
    "detector": torch.optim.SGD(detector.parameters(), lr=1e-4),
}
scalers = {
    "forecast": torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=AMP),
    "detector": torch.amp.GradScaler("cpu", init_scale=2.0**19, enabled=AMP),
}


def improve(name, loss):
    optimizers[name].zero_grad()
    scalers[name].scale(loss).backward()
    scalers[name].step(optimizers[name])
    scalers[name].update()


def not_an_alarm(logit):
    if MODE == "fixed":
        return -nn.functional.logsigmoid(-logit.float()).mean()
    return -torch.log(1 - torch.sigmoid(logit)).mean()


for step in range(140):
    x = torch.randn(64, 6)
    y = x[:, :1] * x[:, 1:2]
    with torch.autocast("cpu", dtype=torch.float16, enabled=AMP):
        guess = forecast(x)
    improve("forecast", (guess.float() - y).square().mean())
    if step % 4 == 3:
        grown = x * (1 + step * step / 200)  # the sensors drift away
        with torch.autocast("cpu", dtype=torch.float16, enabled=AMP):
            loss = not_an_alarm(12 * torch.tanh(detector(torch.cat([grown, guess.detach()], dim=-1))))
        improve("detector", loss)
print(f"loss {loss.item():.4f} scales {[s.get_scale() for s in scalers.values()]}")
