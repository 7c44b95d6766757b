"""A training that knows nothing of us. It waits for `go`, `more` and `end` after 10, 25 and 40 of 50 steps.

usage: train.py MODE [armed] [fail]; prints every loss to the last bit, and what is hooked into torch at the end.
"""

import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizer_hooks

MODE = sys.argv[1]
WAITS, ALL = {10: "go", 25: "more", 40: "end"}, 50


def wait_for(name):
    print(f"waiting for {name}", flush=True)
    while not Path(name).exists():
        time.sleep(0.01)


def model():
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))


def loss_of(net, scale=1.0):
    x = torch.randn(16, 8)
    return scale * (net(x) - x.sum(1, keepdim=True)).square().mean()


def plain(steps, dtype=None, scaler=None, scale=1.0, clip=False):
    from torch.nn.utils import clip_grad_norm_  # bound long before anybody attaches

    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    scaler = scaler or torch.amp.GradScaler("cpu", enabled=False)
    for _ in steps:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            loss = loss_of(net, scale)
        scaler.scale(loss).backward()
        if clip:
            clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        yield loss


def by_hand(steps):
    net = model()
    for _ in steps:
        loss = loss_of(net)
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p.sub_(1e-2 * p.grad)
                p.grad = None
        yield loss


def untold(steps):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    for _ in steps:
        optimizer.zero_grad()
        loss = loss_of(net)
        loss.backward()
        with torch.no_grad():  # as compiled steps do, at less cost
            for p in net.parameters():
                p.sub_(1e-2 * p.grad)
        yield loss


def closure(steps):
    net = model()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def evaluate():
        optimizer.zero_grad()
        loss = loss_of(net)
        loss.backward()
        return loss

    for _ in steps:
        yield optimizer.step(evaluate)


def two(steps):
    first, second = model(), model()
    optimizers = [torch.optim.SGD(n.parameters(), lr=1e-3) for n in (first, second)]
    for _ in steps:
        for net, optimizer in zip((first, second), optimizers, strict=True):
            optimizer.zero_grad()
            loss = loss_of(net)
            loss.backward()
            optimizer.step()
        yield loss


def frozen_heap(steps):
    import gc

    losses = plain(steps)
    globals()["kept"] = losses  # a generator that waits shows its variables to nobody
    yield next(losses)
    gc.collect()
    gc.freeze()
    yield from losses
    gc.unfreeze()  # what is frozen at the end, Triton reports as leaked


def loader(steps):
    data = torch.utils.data.DataLoader(torch.randn(800, 8), batch_size=16, num_workers=2)
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    over = threading.Event()
    threading.Thread(target=busy, args=[over]).start()
    for _, x in zip(steps, data, strict=True):
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss
    over.set()


def busy(over):
    a = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    while not over.wait(0.001):
        a @ a


def fp16(scale):
    return {"dtype": torch.float16, "scaler": torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=7)}


MODES = {
    "plain": plain,
    "clipped": lambda steps: plain(steps, clip=True),
    "scaled": lambda steps: plain(steps, **fp16(2.0**10)),
    "skipping": lambda steps: plain(steps, scale=float("inf"), **fp16(2.0**10)),
    "vanishing": lambda steps: plain(steps, dtype=torch.float16, scale=1e-9),
    "by_hand": by_hand,
    "untold": untold,
    "joined": plain,
    "closure": closure,
    "two": two,
    "frozen_heap": frozen_heap,
    "loader": loader,
}


def hooked():
    return {
        "hooks": [
            len(hooks)
            for place in (module_hooks, optimizer_hooks)
            for name, hooks in sorted(vars(place).items())
            if name.startswith("_global_") and isinstance(hooks, dict)
        ],
        "code": [
            f.__code__.co_filename.rpartition("/")[2]
            for f in (
                torch.autograd.backward, torch.autograd.grad, torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler.step,
                torch.amp.GradScaler.update, torch.optim.Optimizer.zero_grad, torch.autocast.__exit__,
                torch.autograd.profiler.record_function.__exit__, torch.compile,
            )
        ],
        "globals": [n for n in vars(sys.modules["torch.nn.utils.clip_grad"]) if "ampdoctor" in n],
        "excepthook": sys.excepthook is sys.__excepthook__,
        "main": [n for n in globals() if "serve" in n or "ampdoctor" in n],
    }  # fmt: skip


def main():
    if "armed" in sys.argv:
        __import__("ampdoctor").arm()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for step, loss in enumerate(MODES[MODE](range(ALL)), 1):
        print(step, loss.item().hex(), flush=True)
        if step in WAITS:
            wait_for(WAITS[step])
    if "fail" in sys.argv:
        raise RuntimeError("the training fails")
    print(hooked())


if MODE == "joined":
    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
else:
    main()
