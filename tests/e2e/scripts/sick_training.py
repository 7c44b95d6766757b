"""Writes a run whose gradients underflow, then waits for its input to end; `kill` makes it kill itself instead."""

import os
import signal
import sys

from ampdoctor.record.launch import Recording
from ampdoctor.rules import find_rule
from ampdoctor.trace.info import RunInfo, write_info
from ampdoctor.trace.writer import TraceWriter

recording = Recording.from_environment()
assert recording is not None
run = find_rule("gradient-underflow").SICK[0].build().build()
writer = TraceWriter(recording.out)
write_info(recording.out, RunInfo(pid=os.getpid()))
writer.append("steps", run.steps)
writer.append("tensors", run.tensors())
writer.append("calls", run.calls)
writer.flush()
if "kill" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdin.read()
