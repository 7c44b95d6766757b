# kind:   a small GRU language model with weights of BF16 size, fine-tuned in FP16 on a loss summed over the batch
# wrong:  the scaler halves its way below 1 before the first step is taken
# expect: scale-below-one
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
VOCABULARY = 40


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 24)
        self.rnn = nn.GRU(24, 48, batch_first=True)
        self.norm = nn.LayerNorm(48)
        self.head = nn.Linear(48, VOCABULARY)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return self.head(self.norm(hidden))


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        self.scaler = torch.amp.GradScaler("cpu")

    def step(self, tokens):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.float16):
            logits = self.model(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
        self.scaler.scale(40.0 * loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()


def main():
    torch.manual_seed(11)
    model = Model()
    with torch.no_grad():
        model.head.weight.mul_(30.0)
        model.norm.weight.mul_(20.0)
    trainer = Trainer(model)
    for index in range(45):
        loss = trainer.step(torch.randint(0, VOCABULARY, (64, 12)))
        if index % 10 == 0:
            print(index, loss, trainer.scaler.get_scale())


main()
