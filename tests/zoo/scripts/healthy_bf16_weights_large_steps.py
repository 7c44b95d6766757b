# kind:   weights held in BF16, trained from scratch with SGD at a learning rate that moves them
# wrong:  nothing: the few updates that round away hold next to nothing of the movement
# expect: healthy
# run:    healthy_bf16_weights_large_steps.py [fp32]
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(212)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"
dtype = torch.float32 if MODE == "fp32" else torch.bfloat16

model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 3)).to(dtype)
optimizer = torch.optim.SGD(model.parameters(), lr=0.4)
x = torch.randn(512, 12)
label = (x @ torch.randn(12, 3)).argmax(dim=1)
loader = DataLoader(TensorDataset(x, label), batch_size=16, shuffle=True)

for epoch in range(4):
    total = 0.0
    for rows, target in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(rows.to(dtype)).float(), target)
        loss.backward()
        optimizer.step()
        total += loss.item() / len(loader)
    print(f"epoch {epoch}: {total:.4f}")
print(f"final {total:.4e}")
