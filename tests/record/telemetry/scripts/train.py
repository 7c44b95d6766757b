"""Trains under a recorder: some steps, and on until it is known what became of the GPU telemetry; may fork."""

import os
import sys
from pathlib import Path

import torch
from torch import nn

from ampdoctor.record.recorder import Recorder
from ampdoctor.record.telemetry import sampler
from ampdoctor.trace.info import read_info
from ampdoctor.trace.writer import prepare_folder

folder, how = Path(sys.argv[1]), sys.argv[2:]
sampler.INTERVAL_S = 0.001
prepare_folder(folder)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).sum().backward()
        optimizer.step()


with Recorder(folder, model=model, optimizer=optimizer, strict=True):
    train(10)
    while "until-known" in how and read_info(folder).gpu_telemetry is None:
        train(1)
    for _ in range(8 if "fork" in how else 0):
        child = os.fork()
        if not child:
            train(2)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        train(1)
