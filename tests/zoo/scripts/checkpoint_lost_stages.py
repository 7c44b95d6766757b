# kind:   a model that trades time for memory with a checkpoint of its own around each stage, in BF16 with AdamW
# wrong:  the stages run again without autocast when the gradients are made
# expect: checkpoint-autocast-lost
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


class Saved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, stage, x):
        ctx.stage = stage
        ctx.save_for_backward(x)
        with torch.no_grad():
            return stage(x.detach())

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        x = x.detach().float().requires_grad_(True)
        with torch.enable_grad():
            y = ctx.stage(x)
        torch.autograd.backward(y, grad.to(y.dtype))
        return None, x.grad


class Stages(nn.Module):
    def __init__(self, width=24, depth=3):
        super().__init__()
        self.stem = nn.Conv1d(2, width, 3, padding=1)
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv1d(width, width, 3, padding=1), nn.SiLU()) for _ in range(depth)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = x + Saved.apply(stage, x)
        return self.head(x.mean(-1))


def main():
    torch.manual_seed(9)
    model = Stages()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(25):
        x = torch.randn(12, 2, 16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(model(x).float(), x.std((1, 2))[:, None])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


main()
