# kind:   knowledge distillation with kl_div's default reduction: a mean over tokens *and* vocabulary
# wrong:  FP16 autocast without a scaler: the student stays at its first loss, nothing is reported
# expect: gradient-underflow
# run:    underflow_distill_kl_mean.py [fp32|fixed]
import contextlib
import sys
import warnings

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
warnings.filterwarnings("ignore", message="reduction: 'mean' divides the total loss")

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
VOCABULARY = 512


class Student(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.vocabulary = nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        states, _ = self.encoder(self.tokens(ids))
        return self.vocabulary(states)


class Distiller:
    """Trains `model` towards the next-token distribution of a fixed teacher."""

    temperature = 2.0

    def __init__(self, model, teacher_logits):
        self.model = model
        self.teacher_logits = teacher_logits
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        self.scaler = torch.amp.GradScaler("cpu") if MODE == "fixed" else None

    def autocast(self):
        if MODE == "fp32":
            return contextlib.nullcontext()
        return torch.autocast("cpu", dtype=torch.float16)

    def loss(self, ids):
        with torch.no_grad():
            target = F.softmax(self.teacher_logits[ids] / self.temperature, dim=-1)
        with self.autocast():
            logits = self.model(ids)
        guess = F.log_softmax(logits.float() / self.temperature, dim=-1)
        return F.kl_div(guess, target) * self.temperature**2

    def train_step(self, ids):
        self.optimizer.zero_grad()
        loss = self.loss(ids)
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return loss.item()

    def fit(self, steps):
        for step in range(steps):
            loss = self.train_step(torch.randint(0, VOCABULARY, (16, 12)))
            if step % 20 == 0:
                print(f"step {step:3d}  kl {loss:.4e}")
        return loss


torch.manual_seed(102)
teacher = torch.randn(VOCABULARY, 12) @ torch.randn(12, VOCABULARY) / 12**0.5
distiller = Distiller(Student(), teacher)
print(f"final {distiller.fit(100):.4e}")
