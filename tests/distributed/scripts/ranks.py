"""Two ranks train: `ranks.py KIND`, where KIND says how (see tests/distributed/test_ranks.py)."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

KIND = sys.argv[1]
FEATURES, HIDDEN, CLASSES = 7, 9, 5
BREAKS_AT = 2


class Checkpointed(nn.Module):
    """Its first part is computed twice."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.inner = nn.Linear(FEATURES, FEATURES)
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the inner part under checkpointing."""
        out: torch.Tensor = checkpoint(self.inner, x.requires_grad_(), use_reentrant=self.reentrant)
        return out


def network() -> nn.Sequential:
    """Return the same network on all ranks; no size can be divided by two."""
    torch.manual_seed(0)
    first = [Checkpointed(reentrant=KIND == "reentrant")] if KIND in {"reentrant", "checkpointed"} else []
    return nn.Sequential(*first, nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


def sharded(net: nn.Sequential, half: bool) -> nn.Sequential:
    """Spread the network over the ranks."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for part in (net[0], net[2], net):
        fully_shard(part, mesh=mesh, mp_policy=policy)
    return net.to(torch.bfloat16) if half else net


def main() -> None:
    """Train for some steps of two micro-batches and print what comes out, to the bit."""
    dist.init_process_group("gloo")
    rank, spread = dist.get_rank(), KIND.startswith("fsdp")
    net = network()
    model = sharded(net, half=KIND == "fsdp-half") if spread else DistributedDataParallel(net)
    if KIND == "hook":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=not spread)
    torch.manual_seed(1 + rank)
    for step in range(4):
        optimizer.zero_grad()
        for last in (False, True):
            if spread:
                model.set_requires_gradient_sync(last)
            else:
                model.require_backward_grad_sync = last
            x = torch.randn(4, FEATURES)
            if KIND == "nan" and rank == 1 and step >= BREAKS_AT:
                x *= float("inf")
            with torch.autocast("cpu", torch.float16, enabled=not spread):
                loss = model(x).float().square().mean()
            scaler.scale(loss).backward()
        if KIND == "skips" and rank == 1 and step == BREAKS_AT:
            net[0].weight.grad[0, 0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        sys.stdout.write(f"rank {rank} step {step} {loss.item().hex()}\n")
    for name, parameter in model.named_parameters():
        gradient = parameter.grad.full_tensor() if spread else parameter.grad
        square = gradient.double().square().mean().item()
        if rank == 0:
            sys.stdout.write(f"gradient {name} {gradient.numel()} {gradient.abs().max().item()} {square**0.5}\n")
    sys.stdout.flush()
    # torch joins gloo's thread while it holds the GIL, which that thread may still want to free its last work
    time.sleep(1.0)
    dist.destroy_process_group()


main()
