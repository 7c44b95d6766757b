# kind:   deep CNN without normalisation, initialised too large: each layer multiplies the activations
# wrong:  after some layers they pass 65504, the first loss is NaN and, without a scaler, so are the weights
# expect: activation-overflow
# run:    overflow_plain_cnn.py [fp32|fixed]
import itertools
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(109)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class FaceEmbedder(nn.Module):
    """Eight convolutions and an embedding of length 1, compared with one direction per person."""

    def __init__(self, people):
        super().__init__()
        widths = [3, 12, 12, 12, 12, 12, 12, 12, 12]
        self.convs = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1) for i, o in itertools.pairwise(widths))
        for conv in self.convs:
            nn.init.normal_(conv.weight, std=1.0)
        self.people = nn.Parameter(torch.randn(people, 12))

    def forward(self, image):
        x = image
        for conv in self.convs:
            x = F.relu(conv(x))
        embedding = F.normalize(x.mean(dim=(2, 3)), eps=1e-4)
        return 8.0 * embedding @ F.normalize(self.people).T


model = FaceEmbedder(people=6)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
prototypes = torch.randn(6, 3, 8, 8)
dtype = torch.bfloat16 if MODE == "fixed" else torch.float16

for step in range(40):
    who = torch.randint(0, 6, (16,))
    photos = prototypes[who] + 0.3 * torch.randn(16, 3, 8, 8)
    with torch.autocast("cpu", dtype=dtype, enabled=MODE != "fp32"):
        loss = F.cross_entropy(model(photos), who)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 8 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
print(f"final {loss.item():.4e}")
