"""Starts two trainings in processes of their own, as a launcher does."""

import subprocess
import sys
from pathlib import Path

import torch

command = [sys.executable, str(Path(__file__).parent / "ending.py"), "normally"]
children = [subprocess.Popen(command) for _ in range(2)]
print(torch.ones(1).item(), [child.wait() for child in children])
