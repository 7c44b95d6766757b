# kind:   backward() inside the autocast block, in BF16, with a norm and a head in FP32
# wrong:  nothing that shows: it is not recommended, and does no harm here
# expect: healthy
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(2)
body, norm, head = nn.Linear(12, 32), nn.LayerNorm(32), nn.Linear(32, 3)
parameters = [*body.parameters(), *norm.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
for _ in range(30):
    x = torch.randn(32, 12)
    y = x[:, :3].argmax(1)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = torch.relu(body(x))
        with torch.autocast("cpu", enabled=False):
            loss = nn.functional.cross_entropy(head(norm(h.float())), y)
        loss.backward()
    optimizer.step()
print(loss.item())
