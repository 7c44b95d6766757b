# kind:   a BF16 recurrent model, AdamW, 512 micro-batches of one sequence each accumulated into .grad
# wrong:  the accumulated gradient is far shorter than the sum of the micro-batches'
# expect: half-grad-accumulation
# run:    accum_many_micro_batches_gru.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
DTYPE = torch.bfloat16 if MODE == "fault" else torch.float32
MICRO_BATCHES = 512


class Counter(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.cell = nn.GRUCell(2, width)
        self.out = nn.Linear(width, 1)

    def forward(self, sequence):
        state = sequence.new_zeros(1, self.cell.hidden_size)
        for item in sequence:
            state = self.cell(item.unsqueeze(0), state)
        return self.out(state)


torch.manual_seed(315)
model = Counter().to(DTYPE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(3):
    optimizer.zero_grad(set_to_none=True)
    logged = 0.0
    for _ in range(MICRO_BATCHES):
        sequence = torch.rand(4, 2).to(DTYPE)
        loss = (model(sequence).float() - 5.0).abs().mean() / 8
        loss.backward()
        logged += loss.item()
    optimizer.step()
    print(f"step {step}: {8 * logged / MICRO_BATCHES:.4f}")
