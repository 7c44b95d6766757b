"""Writes the run that a recorder would, with neither torch nor a training: `fake_training.py [LOSS ...]`."""

import sys

from ampdoctor.record.launch import Recording
from ampdoctor.trace.info import RunInfo, write_info
from ampdoctor.trace.writer import TraceWriter
from tests.recorded import step_rows

recording = Recording.from_environment()
assert recording is not None
writer = TraceWriter(recording.out)
write_info(recording.out, RunInfo())
writer.append("steps", step_rows([float(loss) for loss in sys.argv[1:]]))
writer.close()
print("trained")
