"""An MLP-Mixer is fine-tuned two images at a time: BF16 copies of its weights outweigh what activations save."""
# expect: amp-memory-not-reduced

import torch
from torch import nn

torch.manual_seed(3)


class Block(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.tokens = nn.Linear(tokens, tokens)
        self.channels = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(x.transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm(x))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(48, 384)
        self.blocks = nn.ModuleList(Block(9, 384) for _ in range(3))
        self.head = nn.Linear(384, 10)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        x = self.embed(patches)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def main() -> None:
    model = Mixer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(8):
        images, labels = torch.randn(2, 9, 48), torch.randint(0, 10, (2,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item())


main()
