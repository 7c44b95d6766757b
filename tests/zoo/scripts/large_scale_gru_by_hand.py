# kind:   loss * 2**20 by hand, gradients divided in a loop, nobody looks for inf
# wrong:  the first FP16 backward overflows, Adagrad's sums become inf or NaN with the weights
# expect: loss-scale-too-large
# run:    large_scale_gru_by_hand.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
SCALE = {"fault": 2**20, "fixed": 2**7}.get(MODE, 1)
TEXT = "the quick brown fox jumps over the lazy dog and the dog sleeps on while the fox runs home. "


class CharModel(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.embed = nn.Embedding(letters, 24)
        self.rnn = nn.GRU(24, 48, batch_first=True)
        self.out = nn.Linear(48, letters)

    def forward(self, ids):
        hidden, _ = self.rnn(self.embed(ids))
        return self.out(hidden)


def windows(ids, count, length=16):
    starts = torch.randint(0, len(ids) - length - 1, (count,))
    chunk = torch.stack([ids[s : s + length + 1] for s in starts.tolist()])
    return chunk[:, :-1], chunk[:, 1:]


def run_epoch(model, optimizer, ids, batches=12):
    total = 0.0
    for _ in range(batches):
        inputs, targets = windows(ids, 8)
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            logits = model(inputs)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        model.zero_grad()
        scaled_loss = loss * SCALE
        scaled_loss.backward()
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad = p.grad / SCALE
        optimizer.step()
        total += loss.item()
    return total / batches


if __name__ == "__main__":
    torch.manual_seed(105)
    alphabet = sorted(set(TEXT))
    ids = torch.tensor([alphabet.index(c) for c in TEXT * 3])
    net = CharModel(len(alphabet))
    adagrad = torch.optim.Adagrad(net.parameters(), lr=0.05)
    for epoch in range(5):
        loss = run_epoch(net, adagrad, ids)
        print(f"epoch {epoch}: {loss:.4f}")
    print(f"final {loss:.4e}")
