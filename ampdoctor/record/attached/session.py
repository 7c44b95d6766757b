"""One recording of a process that was running already: begun, and ended, where its training is between two steps."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from ampdoctor.record.attached.boundaries import Boundaries
from ampdoctor.record.guard import told
from ampdoctor.record.last_words import LastWords
from ampdoctor.record.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

    from ampdoctor.record.launch import Recording

PATIENCE_S = 20.0
"""A training that has not ended a step for so long is not in one: an idle notebook, or its evaluation."""


class _Recorder(Recorder):
    """Lies beneath the boundaries. Wrappers come off from the outside in, also where it fails and takes its own off."""

    def __init__(self, boundaries: Boundaries, folder: Path, **settings: Any) -> None:
        super().__init__(folder, **settings)
        self._boundaries = boundaries

    def untold(self, parameters: list[torch.Tensor]) -> None:
        """End a step that no optimizer tells of: the boundaries see it before the recorder does."""
        with self._guard:
            self._calls.untold(parameters)

    def _detach(self) -> None:
        self._boundaries.leave()
        super()._detach()


class Session:
    """Records until it has been asked to stop, or enough steps are over.

    Args:
        recording: settings.
        steps: end after so many; None for never.
        tell: passes an event and what belongs to it on to whoever attached. Must not raise.
    """

    def __init__(self, recording: Recording, steps: int | None, tell: Callable[..., None]) -> None:
        self._recording, self._steps, self._tell = recording, steps, tell
        self._boundaries = Boundaries(self._at_boundary)
        self._recorder: _Recorder | None = None
        self._last_words: LastWords | None = None
        self._asked = False
        self._lock = threading.Lock()
        self.ended = threading.Event()
        self._log = logging.getLogger("ampdoctor")

    def begin(self) -> None:
        """Have the training's thread begin to record where its next step begins."""
        self._boundaries.watch()
        self._tell("waiting")

    def ask(self) -> None:
        """Have it end where the step at hand does; where none ends for long, end it from here."""
        self._asked = True
        if self._recorder is None or not self.ended.wait(PATIENCE_S):
            self._end()

    def disown(self) -> None:
        """In a forked child, whose recorder sees to itself: leave it as it would be."""
        self.ended.set()
        self._boundaries.leave()
        if self._last_words is not None:
            self._last_words.leave()

    def _at_boundary(self, untold: list[torch.Tensor] | None) -> None:
        """On the training's thread, between two steps. Never raises."""
        try:
            if self.ended.is_set():
                return
            if untold is not None and self._recorder is not None:
                self._recorder.untold(untold)
            if self._recorder is None:
                with self._lock:
                    if not self._asked:
                        self._start()
            elif self._asked or self._recorder.is_over(self._steps):
                self._end()
        except Exception as error:  # noqa: BLE001 - never into the training
            self._tell("refused", reason=told(error))
            self._closed()

    def _start(self) -> None:
        # Ours have to come off first, to be the outermost ones afterwards: the recorder then sees a step's end first.
        self._boundaries.leave()
        self._log.addFilter(self._failed)
        recording = self._recording
        self._recorder = _Recorder(
            self._boundaries,
            recording.out,
            strict=recording.strict or None,
            on_open=lambda folder: self._tell("recording", folder=str(folder)),
            on_close=self._closed,
            **recording.settings(),
        ).start()
        if self.ended.is_set():
            return
        self._last_words = LastWords(self._recorder)
        self._last_words.listen()
        self._boundaries.watch()

    def _end(self) -> None:
        with self._lock:
            self._boundaries.leave()
            recorder, self._recorder = self._recorder, None
            if recorder is not None:
                recorder.stop()
            self._closed()

    def _failed(self, record: logging.LogRecord) -> bool:
        """The recorder has given up, which it would say among what the training prints: say it to the visitor."""
        self._tell("failed", reason=record.getMessage())
        self._closed()
        return False

    def _closed(self, *_: Path) -> None:
        """The recorder has stopped: because we did, because it has failed, or because the process ends."""
        if self.ended.is_set():
            return
        self._boundaries.leave()
        self._log.removeFilter(self._failed)
        if self._last_words is not None:
            self._last_words.leave()
        self.ended.set()
        self._tell("ended")
