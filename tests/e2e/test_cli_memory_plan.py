"""`ampdoctor memory plan`, as a person types it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ampdoctor.record.planning.layouts import LAYOUTS
from tests.e2e.command import ampdoctor

if TYPE_CHECKING:
    from pathlib import Path

MODEL = """
import torch
from torch import nn

print("importing")


def model():
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
    return net, lambda size: torch.randn(size, 64)


def looks():
    class Looks(nn.Linear):
        def forward(self, x):
            return super().forward(x) * (2 if x.sum() > 0 else 1)

    return Looks(64, 8), lambda size: torch.randn(size, 64)
"""

COMPONENTS = {"weights", "master_weights", "gradients", "optimizer", "activations", "autocast_cache", "temporary"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model."""
    (tmp_path / "small.py").write_text(MODEL, encoding="utf-8")
    return tmp_path


def test_json(folder: Path) -> None:
    done = ampdoctor(
        "memory", "plan", "small.py:model", "--batch", 4, "--layout", ",".join(LAYOUTS), "--world-size", 2,
        "--card", "1MB", "--format", "json", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == "importing\n"
    answer = json.loads(done.stdout)
    assert answer["parameters"] == 64 * 128 + 128 + 128 * 8 + 8
    assert [each["layout"] for each in answer["layouts"]] == list(LAYOUTS)
    for each in answer["layouts"]:
        assert each["components"].keys() >= COMPONENTS
        assert sum(each["components"].values()) == each["peak_bytes"]
        assert each["largest_batch"] > 4
    assert answer["layouts"][0]["state_bytes_per_parameter"] == pytest.approx(16, rel=0.05)


def test_text(folder: Path) -> None:
    done = ampdoctor("memory", "plan", "small:model", "--layout", "fp32,amp-fp16", "--card", "1MB", cwd=folder)
    assert done.returncode == 0, done.stderr
    heads = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert heads.count("fp32") == heads.count("amp-fp16") == 2
    assert "batch in 0.001 GB" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 110


def test_what_does_not_fit_is_planned_all_the_same(folder: Path) -> None:
    done = ampdoctor("memory", "plan", "small.py:model", "--layout", "fp32", "--card", "1kB", cwd=folder)
    assert done.returncode == 2
    done = ampdoctor("memory", "plan", "small.py:model", "--layout", "fp32", "--card", "1000", cwd=folder)
    assert done.returncode == 2
    assert "does not fit" in done.stdout
    assert "a single sample does not fit 1000" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "TARGET"),
        (("small.py:model", "--batch", "0"), "--batch is 0"),
        (("small.py:model", "--batch", "many"), "invalid int value"),
        (("small.py:model", "--layout", "fp8"), "known layouts: fp32"),
        (("small.py:model", "--optimizer", "lion"), "known optimizers: adamw"),
        (("small.py:model", "--device", "tpu"), "known devices: cuda, cpu"),
        (("small.py:model", "--world-size", "0"), "--world-size is 0"),
        (("small.py:nothing",), "it has looks, model"),
        (("nowhere.py:model",), "there is no file"),
        (("small.py:looks",), "(small.py:16)"),
    ],
)
def test_bad_input_is_told_in_two_lines(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    done = ampdoctor("memory", "plan", *arguments, cwd=folder)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
