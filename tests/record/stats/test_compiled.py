"""Whether there is a kernel at all: its own tests are skipped where there is none."""

from __future__ import annotations

import shutil

from ampdoctor.record.stats import cpu


def test_it_is_built_where_there_is_a_compiler() -> None:
    assert cpu.compiled() or shutil.which("cc") is None
