# kind:   GRPO-like fine-tuning of a small GRU: generation in FP32, training under BF16 autocast
# wrong:  the two precisions meet in the sequence ratio
# expect: train-infer-dtype-mismatch
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
VOCABULARY, LENGTH, GROUP = 24, 8, 16


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32)
        self.rnn = nn.GRU(32, 48, batch_first=True)
        self.head = nn.Linear(48, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


class Criterion(nn.Module):
    def forward(self, new, old, advantage):
        ratio = (new - old).mean(1).exp()
        return -torch.minimum(ratio * advantage, ratio.clamp(0.9, 1.1) * advantage).mean()


def log_probs(policy, tokens):
    logits = policy(tokens[:, :-1])
    return F.log_softmax(logits, -1).gather(-1, tokens[:, 1:, None]).squeeze(-1)


class Learner:
    def __init__(self):
        self.policy, self.criterion = Policy(), Criterion()
        with torch.no_grad():
            self.policy.head.weight.mul_(12.0)
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=1e-3)

    @torch.no_grad()
    def generate(self):
        tokens = torch.zeros(GROUP, 1, dtype=torch.long)
        for _ in range(LENGTH):
            probabilities = self.policy(tokens)[:, -1].softmax(-1)
            tokens = torch.cat([tokens, torch.multinomial(probabilities, 1)], 1)
        return tokens, log_probs(self.policy, tokens)

    def iterate(self):
        tokens, old = self.generate()
        reward = (tokens % 3 == 0).float().mean(1)
        advantage = (reward - reward.mean()) / (reward.std() + 1e-4)
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = self.criterion(log_probs(self.policy, tokens), old, advantage)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return reward.mean().item()


torch.manual_seed(4)
learner = Learner()
for _ in range(8):
    score = learner.iterate()
print(score)
