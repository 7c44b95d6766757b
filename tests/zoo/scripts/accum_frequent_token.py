# kind:   BF16 embeddings of a bag-of-words classifier: one filler token makes up nearly all of each batch
# wrong:  its row's gradient is added up token by token in BF16 and stops growing
# expect: half-grad-accumulation
# run:    accum_frequent_token.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

DTYPE = torch.bfloat16 if sys.argv[1:] == [] else torch.float32


class Bag(nn.Module):
    def __init__(self, words=50, width=8):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.out = nn.Linear(width, 1)

    def forward(self, ids):
        return self.out(self.words(ids).mean(dim=1)).squeeze(-1)


def main():
    torch.manual_seed(316)
    model = Bag().to(DTYPE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for step in range(12):
        ids = torch.zeros(64, 64, dtype=torch.long)
        ids[:, :4] = torch.randint(1, 50, (64, 4))
        loss = nn.functional.huber_loss(model(ids).float(), 1.0 + ids[:, 0].float() / 5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: {loss.item():.4f}")


main()
