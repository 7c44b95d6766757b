"""Answers requests inside one autocast block that is never left.

The weights require gradients, as those of any module do, so autocast keeps a BF16 copy of each until the block ends:
half a model more, though nothing is trained.
"""

import argparse
from collections.abc import Iterator

import torch
from torch import Tensor, nn

WIDTH = 1024
LAYERS = 20
REQUEST_SIZE = 4


def serve(model: nn.Module, requests: Iterator[Tensor]) -> Iterator[Tensor]:
    """Yields an answer a request; model.requires_grad_(False) cures it."""
    model.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for request in requests:
            yield model(request).float()


def main(count: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [module for _ in range(LAYERS) for module in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    requests = (torch.randn(REQUEST_SIZE, WIDTH) for _ in range(count))
    for number, answer in enumerate(serve(nn.Sequential(*layers), requests), 1):
        print(f"request {number}  {answer.norm().item():.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=6, help="requests to answer")
    main(parser.parse_args().requests)
