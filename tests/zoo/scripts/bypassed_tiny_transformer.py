# kind:   AMP was added to a trainer class in one place and forgotten in the other: the step is still the FP32 one
# wrong:  AdamW takes scaled gradients: it seems to train, weight decay and eps are off, and no infinity is caught
# expect: scaler-bypassed
import torch
from torch import nn

torch.set_num_threads(1)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.mix = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(32, 5)

    def forward(self, tokens):
        return self.out(self.mix(self.embed(tokens)))


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
        self.loss = nn.CrossEntropyLoss()

    def backward(self, tokens, tags):
        with torch.autocast("cpu", dtype=torch.float16):
            scores = self.model(tokens)
            loss = self.loss(scores.flatten(0, 1).float(), tags.flatten())
        self.scaler.scale(loss).backward()
        return loss.item()

    def fit(self, steps):
        for step in range(steps):
            tokens = torch.randint(0, 50, (8, 12))
            loss = self.backward(tokens, tokens % 5)
            self.optimizer.step()
            self.optimizer.zero_grad()
            if step % 20 == 0:
                print(step, loss)


torch.manual_seed(21)
Trainer(Tagger()).fit(60)
