# kind:   hits per class counted in an FP16 tensor "like the logits", with autocast and a scaler; a conv net
# wrong:  a count of 2048 takes no further hit, so that the accuracy that is printed sinks
# expect: bf16-metric-accumulator
# run:    metric_hits_per_class_half.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

COUNTS = torch.float16 if sys.argv[1:] == [] else torch.float32


def main():
    torch.manual_seed(319)
    model = nn.Sequential(nn.Conv1d(1, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    hits = torch.zeros(2, dtype=COUNTS)
    seen = 0
    for step in range(420):
        x = torch.randn(16, 1, 8)
        label = (x.mean((1, 2)) > 0).long()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
        loss = nn.functional.cross_entropy(logits.float(), label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            right = logits.argmax(dim=1) == label
            for row, good in zip(label.tolist(), right.tolist(), strict=True):
                hits[row] += 1.0 if good else 0.0
        seen += len(label)
        if step % 60 == 59:
            print(f"step {step}: loss {loss.item():.4f} accuracy {hits.sum().item() / seen:.3f}")


main()
