# kind:   cross entropy by hand, in BF16, on BF16 outputs
# fine:   the loss comes out right to two digits, and the model learns as in FP32
# expect: healthy
import torch
from torch import nn

torch.set_num_threads(1)

torch.manual_seed(13)
model = nn.Sequential(nn.Conv1d(4, 32, 5, padding=2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 20, 6))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
x = torch.randn(128, 4, 20)
y = x.mean(2).argmax(1)
for _ in range(30):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(x)
    log_probs = logits - logits.logsumexp(1, keepdim=True)
    loss = -log_probs.gather(1, y[:, None]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
