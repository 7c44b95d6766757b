# kind:   growth_interval=1: the loss scale doubles after every good step and is back in overflow on the next
# wrong:  every second step is thrown away, for ever; the loss lags behind
# expect: scale-hunting
# run:    hunting_interval_one.py [fp32|fixed]
import sys

import torch
from torch import nn
from torch.amp import GradScaler, autocast

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
WORDS, TOPICS = 300, 8


class BagClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(WORDS, 24, mode="mean")
        self.topic = nn.Linear(24, TOPICS)

    def forward(self, documents):
        return self.topic(self.bag(documents))


def documents(count, words_of_topic):
    topic = torch.randint(0, TOPICS, (count,))
    own = words_of_topic[topic].gather(1, torch.randint(0, 20, (count, 12)))
    other = torch.randint(0, WORDS, (count, 12))
    return torch.cat([own, other], dim=1), topic


def train(steps=160):
    torch.manual_seed(111)
    words_of_topic = torch.randint(0, WORDS, (TOPICS, 20))
    model = BagClassifier()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    interval = 1 if MODE == "fault" else 2000
    scaler = GradScaler("cpu", growth_interval=interval, enabled=MODE != "fp32")
    running = None
    for _ in range(steps):
        bag, topic = documents(64, words_of_topic)
        with autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.cross_entropy(model(bag), topic)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
    return running


if __name__ == "__main__":
    print(f"final {train():.4e}")
