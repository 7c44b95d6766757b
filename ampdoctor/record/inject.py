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
    from types import ModuleType, TracebackType

_TORCH = "torch"
_OWN = __name__.partition(".")[0] + "."


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
    from ampdoctor.record.guard import told
    from ampdoctor.record.recorder import Recorder

    recorder = Recorder(
        recording.out,
        every=recording.every,
        budget=recording.budget,
        sample_above=recording.sample_above,
        prove=recording.prove,
        strict=recording.strict or None,
    ).start()
    ahead = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Tell the recorder why the script ends, and show the user a traceback without our frames."""
        recorder.noted(error)
        recorder.stop(exception=told(error))
        for link in _chain(error):
            link.__traceback__ = _without_own_frames(link.__traceback__)
        ahead(kind, error, _without_own_frames(trace))

    sys.excepthook = hook


def _leave_word(recording: Recording, error: Exception) -> None:
    """Say in the run folder why it stays empty; whoever launched us reads it there."""
    try:
        from ampdoctor.trace.info import RunInfo, write_info

        write_info(recording.out, RunInfo(status="degraded", degraded=f"{type(error).__name__}: {error}"))
    except (ImportError, OSError):
        return


def _chain(error: BaseException) -> list[BaseException]:
    """Return `error` and those that it came from: a traceback shows them all."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is not None and all(link is not other for other in found):
            found.append(link)
            waiting += [link.__cause__, link.__context__]
    return found


def _without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and _is_own(trace):
        trace = trace.tb_next
    link = trace
    while link is not None:
        while link.tb_next is not None and _is_own(link.tb_next):
            link.tb_next = link.tb_next.tb_next
        link = link.tb_next
    return trace


def _is_own(trace: TracebackType) -> bool:
    return str(trace.tb_frame.f_globals.get("__name__", "")).startswith(_OWN)
