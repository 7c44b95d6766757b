"""Samples GPUs in one situation after another, and prints what came of each as JSON.

A situation is an environment; with `then`, another one from the look on that follows `looks` of them; with `torch`,
what torch is to say of its own devices.
"""

import json
import os
import sys
import threading
import time
from dataclasses import asdict
from types import SimpleNamespace

import torch

from ampdoctor.record.telemetry.sampler import VARIABLE, GpuTelemetry


def pretend(uuids, current):
    cuda = torch.cuda
    cuda.is_initialized, cuda.device_count = lambda: True, lambda: len(uuids)
    cuda.get_device_properties, cuda.current_device = lambda index: SimpleNamespace(uuid=uuids[index]), lambda: current


def sample(environment, looks=1, then=None, step=7, **others):
    os.environ.update(environment)
    if "torch" in others:
        pretend(**others["torch"])
    rows, enough, changed = [], threading.Event(), threading.Event()

    def take(looked):
        rows.append([asdict(row) for row in looked])
        if len(rows) == looks:
            enough.set()

    def under_way():
        if then is not None and len(rows) >= looks and not changed.is_set():
            os.environ.update(then)
            changed.set()
        return step

    telemetry = GpuTelemetry(take, under_way, interval_s=0.001)
    telemetry.begin()
    thread = telemetry._thread
    until = enough if then is None else changed
    while thread is not None and thread.is_alive() and not until.wait(0.01) and "STUB_HANG" not in environment:
        pass
    while then is not None and "STUB_HANG" not in then and telemetry.said in (None, "sampled"):
        time.sleep(0.01)
    telemetry.stop()
    for name in (*environment, *(then or ())):
        del os.environ[name]
    return {"said": telemetry.said, "looks": rows}


os.environ[VARIABLE] = "1"
print(json.dumps([sample(**situation) for situation in json.loads(sys.argv[1])]))
