# kind:   FP16 with a scaler, micro-batches, and a learning rate schedule; the whole fit() is decorated with autocast
# wrong:  the half copies of the first step serve all others
# expect: autocast-stale-weight-cache
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(13)
encoder = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
head = nn.Linear(16, 16)
parameters = [*encoder.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 25)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)


def batches(steps, accumulate):
    for _ in range(steps):
        yield [torch.randn(4, 5, 16) for _ in range(accumulate)]


@torch.autocast("cpu", dtype=torch.float16)
def fit(steps=25, accumulate=2):
    for micro_batches in batches(steps, accumulate):
        for x in micro_batches:
            loss = nn.functional.mse_loss(head(encoder(x)).float(), x.roll(1, 1)) / accumulate
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        schedule.step()
    return loss.item()


print(fit())
