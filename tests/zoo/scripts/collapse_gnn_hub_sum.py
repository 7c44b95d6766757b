# kind:   "Gradient overflow, skipping step" for ever: sum aggregation over a hub's neighbours passes 65504 in FP16
# wrong:  every step is skipped, the loss scale falls towards 0 and the weights never move; FP32 and BF16 train
# expect: activation-overflow (consequence: scale-collapse)
# run:    collapse_gnn_hub_sum.py [fp32|fixed]
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
DTYPE = torch.bfloat16 if MODE == "fixed" else torch.float16


class GraphLayer(nn.Module):
    def __init__(self, width_in, width_out):
        super().__init__()
        self.own = nn.Linear(width_in, width_out)
        self.neighbours = nn.Linear(width_in, width_out)

    def forward(self, x, adjacency):
        return F.relu(self.own(x) + adjacency @ self.neighbours(x))


class GraphNet(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.first = GraphLayer(features, 32)
        self.second = GraphLayer(32, 32)
        self.norm = nn.LayerNorm(32)
        self.classify = nn.Linear(32, classes)

    def forward(self, x, adjacency):
        for layer in (self.first, self.second):
            x = layer(x, adjacency)
        return self.classify(self.norm(x))


def citations(papers=160, features=16):
    """A graph in which papers cite their own field, and a few hubs everybody."""
    field = torch.arange(papers) % 3
    same = field[:, None] == field[None, :]
    edges = torch.rand(papers, papers) < torch.where(same, 0.7, 0.1)
    edges[:4] = True
    word_counts = torch.poisson(torch.rand(3, features) * 200)[field]
    word_counts = word_counts + torch.poisson(torch.full((papers, features), 40.0))
    return word_counts, (edges | edges.T).float(), field


def main():
    torch.manual_seed(107)
    words, adjacency, field = citations()
    model = GraphNet(words.shape[1], 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE == "fault")
    for epoch in range(40):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=DTYPE, enabled=MODE != "fp32"):
            loss = F.cross_entropy(model(words, adjacency), field)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if epoch % 10 == 0:
            print(f"epoch {epoch}: {loss.item():.4f}, loss scale {scaler.get_scale():g}")
    print(f"final {loss.item():.4e}")


if __name__ == "__main__":
    main()
