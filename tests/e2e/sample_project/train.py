"""Train a small classifier in FP16 on a CPU, in a few seconds."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8))


def data(examples: int = 2048) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(examples, 32)
    teacher = nn.Linear(32, 8)
    with torch.no_grad():
        return inputs, teacher(inputs).argmax(dim=1)


def train(model, optimizer, scaler, steps: int, dtype: torch.dtype = torch.float16) -> float:
    inputs, labels = data()
    loss = torch.zeros(())
    for _ in range(steps):
        batch = torch.randint(len(inputs), (64,))
        with torch.autocast("cpu", dtype=dtype):
            outputs = model(inputs[batch])
        loss = F.cross_entropy(outputs.float(), labels[batch])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bf16", action="store_true", help="BF16 instead of FP16")
    parser.add_argument("--no-scaler", action="store_true", help="the mistake that the gate is to catch")
    parser.add_argument("--loss-weight", type=float, default=1.0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=not (args.no_scaler or args.bf16))
    loss = train(model, optimizer, scaler, args.steps, torch.bfloat16 if args.bf16 else torch.float16)
    print(f"loss {loss:.3f}")


if __name__ == "__main__":
    main()
