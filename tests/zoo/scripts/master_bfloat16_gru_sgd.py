# kind:   a GRU tagger cast with .bfloat16() and trained under BF16 autocast, with SGD and momentum
# wrong:  the trained weights are BF16, so most of the small updates round away although autocast is on
# expect: master-weights-missing
# run:    master_bfloat16_gru_sgd.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Tagger(nn.Module):
    def __init__(self, words=80, width=48, tags=5):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.tags = nn.Linear(width, tags)

    def forward(self, ids):
        hidden, _ = self.rnn(self.words(ids))
        return self.tags(hidden)


class Trainer:
    def __init__(self, model):
        self.model = model.bfloat16() if MODE == "fault" else model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def fit(self, batches):
        for number, (ids, tags) in enumerate(batches):
            loss = self.step(ids, tags)
            if number % 30 == 0:
                print(f"batch {number}: {loss:.4f}")
        print(f"final {loss:.4e}")

    def step(self, ids, tags):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=MODE != "fp32"):
            logits = self.model(ids)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def batches(count):
    for _ in range(count):
        ids = torch.randint(0, 80, (16, 12))
        yield ids, ids % 5


if __name__ == "__main__":
    torch.manual_seed(301)
    Trainer(Tagger()).fit(batches(120))
