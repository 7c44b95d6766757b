# kind:   gradient clipping kept from the FP32 script when accumulation, a schedule and a scaler were added
# wrong:  clip_grad_norm_ sees gradients times 65536 and cuts them to 1; divided again they are nothing
# expect: clip-before-unscale
# run:    clip_imported_by_name.py [fp32|fixed]
import sys

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
ACCUMULATE, MAX_NORM = 2, 1.0


class SortJudge(nn.Module):
    """Says which of four positions holds the largest token."""

    def __init__(self, tokens=32, width=24):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.position = nn.Parameter(0.02 * torch.randn(4, width))
        self.block = nn.TransformerEncoderLayer(width, 2, 48, dropout=0.1, batch_first=True, norm_first=True)
        self.score = nn.Linear(width, 1)

    def forward(self, tokens):
        return self.score(self.block(self.embed(tokens) + self.position)).squeeze(-1)


def train_one_step(model, optimizer, scaler):
    total = 0.0
    for _ in range(ACCUMULATE):
        tokens = torch.randint(0, 32, (32, 4))
        with torch.autocast("cpu", dtype=torch.float16, enabled=scaler.is_enabled()):
            logits = model(tokens)
            loss = nn.functional.cross_entropy(logits, tokens.argmax(dim=1))
        scaler.scale(loss / ACCUMULATE).backward()
        total += loss.item() / ACCUMULATE
    if MODE == "fixed":
        scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), MAX_NORM)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    return total


def main():
    torch.manual_seed(115)
    model = SortJudge()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    for step in range(80):
        loss = train_one_step(model, optimizer, scaler)
        schedule.step()
        if step % 20 == 19:
            print(f"step {step + 1}: {loss:.4f} (lr {schedule.get_last_lr()[0]:.3f})")
    print(f"final {loss:.4e}")


if __name__ == "__main__":
    main()
