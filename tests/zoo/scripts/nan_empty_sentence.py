# kind:   attention pooling over padded sentences, of which a few in the corpus are empty: every place is masked
# wrong:  softmax over nothing but -inf is NaN in every format; BF16 or a lower scale changes nothing
# expect: nan-not-precision
# run:    nan_empty_sentence.py [fp32|fixed]
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
PAD = 0


class AttentionPool(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.score = nn.Linear(width, 1)

    def forward(self, states, padding):
        scores = self.score(states).squeeze(-1).masked_fill(padding, float("-inf"))
        weights = torch.softmax(scores, dim=1)
        if MODE == "fixed":
            weights = weights.masked_fill(padding.all(1, keepdim=True), 0.0)
        return torch.einsum("bt,btd->bd", weights, states)


class Classifier(nn.Module):
    def __init__(self, vocabulary=50, width=24):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.LayerNorm(2 * width))
        self.pool = AttentionPool(2 * width)
        self.out = nn.Linear(2 * width, 2)

    def forward(self, tokens):
        states = self.mix(self.embed(tokens))
        return self.out(self.pool(states, tokens == PAD))


def corpus(count=240):
    sentences = []
    for _ in range(count):
        length = int(torch.randint(2, 12, ()))
        words = torch.randint(1, 50, (12,))
        words[length:] = PAD
        sentences.append((words, int(words[:length].float().mean() > 25)))
    for index in (41, 130, 201):  # lines that held nothing but a link
        sentences[index] = (torch.zeros(12, dtype=torch.long), 0)
    return sentences


if __name__ == "__main__":
    torch.manual_seed(703)
    model = Classifier()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2048.0, enabled=MODE != "fp32")
    for epoch in range(3):
        nans = 0
        for tokens, label in DataLoader(corpus(), batch_size=16, shuffle=True):
            with torch.autocast("cpu", torch.float16, enabled=MODE != "fp32"):
                loss = nn.functional.cross_entropy(model(tokens), label)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            nans += int(loss.isnan())
        print(f"epoch {epoch}: {loss.item():.4f} nan {nans} scale {scaler.get_scale():g}")
