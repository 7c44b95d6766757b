"""What is watched of torch beside modules, optimizers and scalers: one file per kind of call."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampdoctor.record.watch.base import Watcher

WATCHERS: tuple[type[Watcher], ...] = ()
"""Every watcher; the recorder makes one of each."""
