# kind:   LoRA adapters on a frozen FP16 model: B starts at zero, so A's first gradient is exactly zero
# wrong:  nothing: zeros by construction, gone after the first step
# expect: healthy
# run:    healthy_lora_adapters.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


class LoRALinear(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base.requires_grad_(False)
        if MODE != "fp32":
            self.base.half()
        self.lora_a = nn.Linear(base.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x):
        return self.base(x) + 2.0 * self.lora_b(self.lora_a(x))


def adapted(model):
    """Replaces every linear layer of `model`, as PEFT does."""
    for name, child in model.named_children():
        if isinstance(child, nn.Linear):
            setattr(model, name, LoRALinear(child))
        else:
            adapted(child)
    return model


if __name__ == "__main__":
    torch.manual_seed(201)
    mlp = nn.Sequential(nn.Linear(24, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh())
    model = adapted(nn.Sequential(mlp, nn.Linear(48, 6)))
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    rule = torch.randn(24, 6)
    for step in range(100):
        x = torch.randn(64, 24)
        target = (x @ rule).argmax(dim=1)
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.cross_entropy(model(x), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")
