"""Attach to a live training again and again: does it live, does it compute the same, how long does it take?

usage: python -m benchmarks.attaching [TIMES]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from statistics import median

from ampdoctor.attach.entrance import enter
from ampdoctor.attach.process import process
from ampdoctor.attach.visit import Visit
from ampdoctor.record.launch import Recording
from ampdoctor.trace.run import open_run

TRAINING = """
import sys, threading, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(2)
over = threading.Event()
def busy():
    a = torch.randn(256, 256, generator=torch.Generator().manual_seed(1))
    while not over.is_set(): a @ a
for _ in range(2): threading.Thread(target=busy).start()
class Data(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True: yield torch.randn(64)
loader = torch.utils.data.DataLoader(Data(), batch_size=32, num_workers=2)
net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step, x in enumerate(loader):
    with torch.autocast("cpu", torch.bfloat16):
        loss = (net(x).float() - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex(), flush=True)
    if not step % 50 and open(sys.argv[1]).read(): break
over.set()
"""


def main(times: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        losses, seconds = _attached(Path(folder), times)
        same = _undisturbed(Path(folder), len(losses))
    print(f"attached {times} times over {len(losses)} steps; losses equal to the last bit: {losses == same}")
    print(
        f"seconds until the first step was recorded: median {median(seconds):.2f}, "
        f"{min(seconds):.2f} to {max(seconds):.2f}"
    )


def _start(folder: Path, name: str) -> tuple[subprocess.Popen[bytes], Path, Path]:
    stop, out = folder / f"{name}.stop", folder / f"{name}.out"
    stop.touch()
    with out.open("wb") as stream:
        return subprocess.Popen([sys.executable, "-c", TRAINING, str(stop)], stdout=stream), stop, out


def _attached(folder: Path, times: int) -> tuple[list[str], list[float]]:
    training, stop, out = _start(folder, "attached")
    while len(out.read_text().splitlines()) < 10:
        time.sleep(0.1)
    seconds = []
    for number in range(times):
        run = folder / str(number)
        run.mkdir()
        began = time.perf_counter()
        target = process(training.pid)
        with closing(Visit(target, enter(target, print))) as visit:
            visit.begin(Recording(out=run, lead=True), 3)
            visit.recording.wait(60.0)
            seconds.append(time.perf_counter() - began)
            visit.over.wait(60.0)
        assert len(open_run(run).steps) == 3
    stop.write_text("now")
    assert training.wait(120.0) == 0
    return out.read_text().split(), seconds


def _undisturbed(folder: Path, steps: int) -> list[str]:
    training, stop, out = _start(folder, "alone")
    while len(out.read_text().splitlines()) < steps:
        time.sleep(0.5)
    stop.write_text("now")
    training.wait(120.0)
    return out.read_text().split()[:steps]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
