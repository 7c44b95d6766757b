# kind:   model.to(torch.bfloat16) to save memory, fine-tuned with plain SGD at a small learning rate
# wrong:  gradients are fine, but most updates are below half a last place of the weights and vanish
# expect: lost-updates
# run:    lost_bf16_text_conv.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class TextConv(nn.Module):
    def __init__(self, words=100, width=64, labels=4):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.conv = nn.Conv1d(width, 128, 3, padding=1)
        self.label = nn.Linear(128, labels)

    def forward(self, ids):
        x = self.conv(self.embed(ids).transpose(1, 2))
        return self.label(torch.relu(x).amax(dim=2))


def main():
    torch.manual_seed(117)
    model = TextConv()
    if MODE == "fault":
        model = model.to(torch.bfloat16)
    ids = torch.randint(0, 100, (256, 16))
    label = (ids < 25).sum(1).clamp(2, 5) - 2
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-3)
    for epoch in range(25):
        for rows in torch.arange(256).split(32):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=MODE == "fixed"):
                logits = model(ids[rows])
            loss = nn.functional.cross_entropy(logits.float(), label[rows])
            loss.backward()
            optimizer.step()
        if epoch % 5 == 4:
            with torch.no_grad():
                whole = nn.functional.cross_entropy(model(ids).float(), label)
            print(f"epoch {epoch + 1}: {whole.item():.4f}")
    print(f"final {whole.item():.4e}")


if __name__ == "__main__":
    main()
