# kind:   a language model whose gradients are cut by a few lines of the user's own, with torch._foreach functions
# wrong:  they see gradients times the loss scale, for nothing unscales them before
# expect: clip-before-unscale
# run:    clip_by_hand_foreach.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class NextToken(nn.Module):
    def __init__(self, tokens=24, width=24):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.mix = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, tokens)

    def forward(self, tokens):
        return self.head(self.mix(self.embed(tokens))[0])


def cut(parameters, limit):
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, (limit / norm).clamp(max=1.0))


def main():
    torch.manual_seed(2)
    model = NextToken()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=30, enabled=MODE != "fp32")
    for step in range(70):
        start = torch.randint(0, 24, (16, 1))
        tokens = (start + torch.arange(9) * 5) % 24
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if MODE == "fixed":
            scaler.unscale_(optimizer)
        cut(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        if step % 14 == 13:
            print(f"step {step + 1}: {loss.item():.4f}")


main()
