"""Start recording in this process as soon as torch has been imported.

Runs before any line of the user's script, so it imports next to nothing and lets torch come when the script asks for
it.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ampdoctor.record.launch import Recording
from ampdoctor.record.tether import die_with_launcher

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_TORCH = "torch"


def install() -> None:
    """Wait for torch, if this process was launched for recording."""
    die_with_launcher()
    recording = Recording.from_environment()
    if recording is not None:
        sys.meta_path.insert(0, _TorchFinder(recording))


class _TorchFinder(MetaPathFinder):
    """Finds torch as ever, but with a loader that starts the recorder afterwards.

    It stays in place until torch is really loaded: libraries ask `find_spec("torch")` long before they import it.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._asking = False

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - of the protocol
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if fullname != _TORCH or self._asking:
            return None
        self._asking = True
        try:
            spec = find_spec(fullname)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _TorchLoader(spec.loader, self)
        return spec

    def loaded(self) -> None:
        """Torch is there: step aside and record."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        try:
            _record(self._recording)
        except Exception as error:
            if self._recording.strict:
                raise
            _leave_word(self._recording, error)
            print(f"ampdoctor: not recording: {error}", file=sys.stderr)  # noqa: T201


class _TorchLoader(Loader):
    def __init__(self, original: Any, finder: _TorchFinder) -> None:
        self._original = original
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        """Answer as the original does where somebody asks the loader for a path or a source."""
        return getattr(self._original, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self._original.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        # From here on torch looks as if it had been loaded without us.
        module.__loader__ = self._original
        if module.__spec__ is not None:
            module.__spec__.loader = self._original
        self._original.exec_module(module)
        self._finder.loaded()


def _record(recording: Recording) -> None:
    from ampdoctor.record.last_words import LastWords
    from ampdoctor.record.recorder import Recorder

    recorder = Recorder(recording.out, strict=recording.strict or None, **recording.settings())
    LastWords(recorder.start()).listen()


def _leave_word(recording: Recording, error: Exception) -> None:
    """Say in the run folder why it stays empty; whoever launched us reads it there."""
    try:
        from ampdoctor.trace.info import RunInfo, write_info

        write_info(recording.out, RunInfo(status="degraded", degraded=f"{type(error).__name__}: {error}"))
    except (ImportError, OSError):
        return
