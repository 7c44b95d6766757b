"""What is watched of torch beside modules, optimizers and scalers: one file per kind of call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.record.watch.autocast import AutocastWatch
from ampdoctor.record.watch.checkpoints import Checkpoints
from ampdoctor.record.watch.comm_hooks import CommHooks
from ampdoctor.record.watch.exceptions import Exceptions
from ampdoctor.record.watch.module_zero_grad import ModuleZeroGrad
from ampdoctor.record.watch.schedulers import Schedulers

if TYPE_CHECKING:
    from ampdoctor.record.watch.base import Watcher

WATCHERS: tuple[type[Watcher], ...] = (AutocastWatch, Checkpoints, CommHooks, Exceptions, ModuleZeroGrad, Schedulers)
"""Every watcher; the recorder makes one of each."""
