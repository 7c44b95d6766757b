# kind:   HEALTHY: after each growth the loss scale is set back to 4096 by hand; no step is ever skipped
# wrong:  nothing; the scale falls again and again, and no overflow is the reason
# expect: healthy
# run:    healthy_scale_capped_by_hand.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fp16"
MOST = 2.0**12

torch.manual_seed(314)
model = nn.Sequential(nn.Conv1d(1, 8, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=MOST, growth_interval=10, enabled=MODE == "fp16")
time = torch.linspace(0, 6.28, 64)
for _ in range(150):
    label = torch.randint(0, 2, (32,))
    wave = torch.sin(time * (1 + 2 * label[:, None]) + 6.28 * torch.rand(32, 1)) + 0.3 * torch.randn(32, 64)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16, enabled=MODE == "fp16"):
        logits = model(wave.unsqueeze(1))
    loss = nn.functional.cross_entropy(logits.float(), label)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() > MOST:
        scaler.update(MOST)
print(f"loss {loss.item():.4f} scale {scaler.get_scale()}")
