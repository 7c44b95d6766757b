"""Pretrains a tiny BERT on Python's manual in BF16 autocast.

Data, start and the far too small loss are those of `bert_fp16_collapse`. BF16 has the exponents of
FP32, so the gradients do not round to zero and need no loss scaling.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB_SIZE = 4096
SEQUENCE_LENGTH = 64
HIDDEN_SIZE = 64
HEADS = 2
LAYERS = 2
MASKED_SHARE = 0.15
LABEL_SMOOTHING = 0.1
BATCH_SIZE = 8
ACCUMULATION_STEPS = 4
LEARNING_RATE = 2e-3
UNKNOWN, MASK = 0, 1


def load_sequences() -> Tensor:
    """The text that `help()` shows for keywords and topics, as rows of token ids."""
    text = "\n".join(topics[name] for name in sorted(topics)).lower()
    words = re.findall(r"\w+|[^\w\s]", text)
    frequent = Counter(words).most_common(VOCAB_SIZE - 2)
    ids = {word: index for index, (word, _) in enumerate(frequent, start=2)}
    tokens = torch.tensor([ids.get(word, UNKNOWN) for word in words])
    rows = len(tokens) // SEQUENCE_LENGTH
    return tokens[: rows * SEQUENCE_LENGTH].view(rows, SEQUENCE_LENGTH)


def batches(sequences: Tensor, seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields (tokens, masked) for ever, in a new order each epoch."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(sequences), generator=generator)
        whole = len(order) // BATCH_SIZE * BATCH_SIZE
        for rows in order[:whole].view(-1, BATCH_SIZE):
            tokens = sequences[rows]
            yield tokens, torch.rand(tokens.shape, generator=generator) < MASKED_SHARE


class Bert(nn.Module):
    """Encoder and masked-token head; the head sees the masked positions only."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCAB_SIZE, HIDDEN_SIZE)
        self.position = nn.Embedding(SEQUENCE_LENGTH, HIDDEN_SIZE)
        self.norm = nn.LayerNorm(HIDDEN_SIZE)
        layer = nn.TransformerEncoderLayer(
            HIDDEN_SIZE, HEADS, 4 * HIDDEN_SIZE, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, LAYERS)
        self.transform = nn.Linear(HIDDEN_SIZE, HIDDEN_SIZE)
        self.transform_norm = nn.LayerNorm(HIDDEN_SIZE)
        self.decoder = nn.Linear(HIDDEN_SIZE, VOCAB_SIZE)
        self.decoder.weight = self.token.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor, masked: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.encoder(self.norm(self.token(tokens) + self.position(positions)))
        hidden = self.transform_norm(F.gelu(self.transform(hidden[masked])))
        logits: Tensor = self.decoder(hidden)
        return logits


class LabelSmoothing(nn.Module):
    """KL divergence from a target that gives the label 1 - smoothing and shares out the rest."""

    def __init__(self, smoothing: float) -> None:
        super().__init__()
        self.criterion = nn.KLDivLoss()
        self.smoothing = smoothing

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        log_probs = F.log_softmax(logits, dim=-1)
        target = torch.full_like(log_probs, self.smoothing / (logits.shape[-1] - 1))
        target.scatter_(1, labels.unsqueeze(1), 1.0 - self.smoothing)
        loss: Tensor = self.criterion(log_probs, target)
        return loss


def train(steps: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)  # on a CPU, matrices this small gain nothing from a second thread
    torch.manual_seed(0)
    model = Bert().to(device)
    criterion = LabelSmoothing(LABEL_SMOOTHING)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01)
    data = batches(load_sequences())
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        cross_entropy = 0.0
        for _ in range(ACCUMULATION_STEPS):
            tokens, masked = (tensor.to(device) for tensor in next(data))
            labels = tokens[masked]
            with torch.autocast(device, dtype=torch.bfloat16):
                logits = model(tokens.masked_fill(masked, MASK), masked)
                loss = criterion(logits, labels) / len(labels) / ACCUMULATION_STEPS
            loss.backward()
            cross_entropy += F.cross_entropy(logits.detach().float(), labels).item()
        optimizer.step()
        if step == 1 or step % 5 == 0:
            print(f"step {step}  loss {cross_entropy / ACCUMULATION_STEPS:.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40, help="optimizer steps")
    train(parser.parse_args().steps)
