# kind:   a checkpoint loaded with its own BF16 dtype, then fine-tuned with AdamW "in AMP", two parameter groups
# wrong:  there are no FP32 master weights: autocast has nothing to cast, and updates of 1e-5 vanish
# expect: master-weights-missing
# run:    master_loaded_in_half.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Patches(nn.Module):
    def __init__(self, width=32, classes=6):
        super().__init__()
        self.cut = nn.Conv2d(3, width, 4, stride=4)
        self.mix = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        tokens = self.cut(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.mix(tokens)).mean(dim=1))


def pretrained(dtype):
    """Stands in for a hub: the weights come in the dtype that they were saved in, unless told otherwise."""
    model = Patches()
    return model.to(dtype)


def groups(model):
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]


torch.manual_seed(302)
model = pretrained(torch.bfloat16 if MODE == "fault" else torch.float32)
optimizer = torch.optim.AdamW(groups(model), lr=1e-5)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, 1.0, total_iters=20)
images = torch.randn(48, 3, 16, 16)
labels = torch.randint(0, 6, (48,))
images += 0.5 * labels.view(-1, 1, 1, 1)

for epoch in range(40):
    for rows in torch.randperm(48).split(24):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=MODE != "fp32"):
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    if epoch % 10 == 0:
        print(f"epoch {epoch}: {loss.item():.4f}")
print(f"final {loss.item():.4e}")
