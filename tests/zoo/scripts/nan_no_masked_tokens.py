# kind:   masked language modelling in which short batches now and then have no masked token at all
# wrong:  the mean over the masked tokens is 0/0 there; FP32 has the same NaN, the scaler skips it and its scale falls
# expect: nan-not-precision
# run:    nan_no_masked_tokens.py [fp32|fixed]
import random
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
VOCABULARY, MASK = 24, 0


class TinyBert(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, 2, 48, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.encoder(self.tokens(tokens)))


def masked_loss(logits, labels, masked):
    losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none") * masked
    count = masked.sum()
    return losses.sum() / (count.clamp(min=1) if MODE == "fixed" else count)


def train(steps=70):
    torch.manual_seed(702)
    random.seed(702)
    model = TinyBert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0, enabled=MODE != "fp32")
    for step in range(steps):
        length = random.choice([2, 8])
        start = torch.randint(1, VOCABULARY, (3, 1))
        labels = (start + torch.arange(length)) % (VOCABULARY - 1) + 1
        masked = (torch.rand(labels.shape) < 0.15).float()
        inputs = torch.where(masked.bool(), MASK, labels)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16, enabled=MODE != "fp32"):
            loss = masked_loss(model(inputs), labels, masked)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f} scale {scaler.get_scale():g}")
    print(f"final {loss.item():.4e}")


if __name__ == "__main__":
    train()
