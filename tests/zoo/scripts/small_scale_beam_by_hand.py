# kind:   static loss scale of 8, written by hand years ago for another network, divided out again by hand
# wrong:  the network predicts centimetres, the loss is in metres: gradients flush and it stops an order too high
# expect: loss-scale-too-small
# run:    small_scale_beam_by_hand.py [fp32|fixed]
import sys

import torch

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
LOSS_SCALE = {"fault": 8.0, "fixed": 2.0**18}.get(MODE, 1.0)
POINTS = 64


def new_parameters(width=48):
    sizes = [(2, width), (width, width), (width, POINTS)]
    weights = {f"w{i}": torch.randn(n, m) / n**0.5 for i, (n, m) in enumerate(sizes)}
    biases = {f"b{i}": torch.zeros(m) for i, (_, m) in enumerate(sizes)}
    return {name: value.requires_grad_() for name, value in (weights | biases).items()}


def surrogate(p, load_case):
    x = torch.tanh(load_case @ p["w0"] + p["b0"])
    x = torch.tanh(x @ p["w1"] + p["b1"])
    return x @ p["w2"] + p["b2"]  # in centimetres


def cantilever(load_case):
    """Deflection in metres at POINTS places under a tip load and an even load."""
    s = torch.linspace(0, 1, POINTS)
    tip, even = load_case[:, :1], load_case[:, 1:]
    return 0.02 * (tip * s**2 * (3 - s) / 2 + even * s**2 * (6 - 4 * s + s**2) / 3)


def train(steps=150):
    torch.manual_seed(103)
    parameters = new_parameters()
    optimizer = torch.optim.Adam(parameters.values(), lr=3e-3)
    load_case = torch.rand(256, 2) * 2 - 1
    deflection = cantilever(load_case)
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            prediction = surrogate(parameters, load_case)
        loss = (prediction.float() / 100 - deflection).square().mean()
        (loss * LOSS_SCALE).backward()
        for p in parameters.values():
            p.grad /= LOSS_SCALE
        optimizer.step()
    return loss.item() / deflection.square().mean().item()


if __name__ == "__main__":
    print(f"final {train():.4e}")
