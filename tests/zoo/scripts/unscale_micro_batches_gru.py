# kind:   clipping was added to an accumulating Trainer inside its micro-batch loop
# wrong:  unscale_ of the second micro-batch raises; uncaught
# expect: unscale-twice
# run:    unscale_micro_batches_gru.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Tagger(nn.Module):
    def __init__(self, words=40, width=24, tags=5):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.gru = nn.GRU(width, width, bidirectional=True, batch_first=True)
        self.tag = nn.Linear(2 * width, tags)

    def forward(self, words):
        states, _ = self.gru(self.embed(words))
        return self.tag(states)


class Trainer:
    def __init__(self, model, micro_batches):
        self.model, self.micro_batches = model, micro_batches
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4096.0, enabled=MODE != "fp32")

    def clip(self):
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)

    def one_step(self):
        self.optimizer.zero_grad()
        for index in range(self.micro_batches):
            words = torch.randint(0, 40, (8, 9))
            with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
                logits = self.model(words).float()
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), (words % 5).flatten())
            self.scaler.scale(loss / self.micro_batches).backward()
            if MODE != "fixed" or index == self.micro_batches - 1:
                self.clip()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()


torch.manual_seed(407)
trainer = Trainer(Tagger(), micro_batches=2 if MODE != "fp32" else 1)
for _ in range(30):
    loss = trainer.one_step()
print(f"final {loss:.4f}")
