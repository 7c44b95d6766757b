"""Having a debugger run some Python in a process.

What a debugger calls runs wherever the process stands: inside a matrix product, with half the registers in use, or in
malloc. So nothing is called there but two functions that are made for it: `mmap`, for pages to put the source in, and
`Py_AddPendingCall`, which has the interpreter run it on its main thread as soon as that is between two bytecodes. The
debugger has left long before.

A main thread that waits for a lock, while others train, would not be there before they have ended. Its wait is ended
as by a signal, on which Python looks after pending calls and waits on.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampdoctor.attach.process import Process

_TIMEOUT_S = 60.0
_READ_WRITE, _PRIVATE_ANONYMOUS = 0x3, 0x22
_DONE = ("ampdoctor: let in 0", "(int) $pending = 0")
"""What gdb and lldb print once the call is pending; 0 is what `Py_AddPendingCall` returned."""

_FUTEX, _INTERRUPTED = 202, -4
"""On x86-64, where `orig_rax` is the system call, and `rax` what it returns. There are no such registers elsewhere."""


def run_in(target: Process, source: str, work: Path) -> None:
    """Have the main thread of `target` run the Python `source`, which never raises, soon.

    Args:
        target: the process.
        source: what to run.
        work: a folder for what the debugger reads.

    Raises:
        AmpDoctorError: there is no debugger, or it can't do that.
    """
    page = work / "source"
    page.write_bytes(source.encode() + b"\0")
    for name, command in _DEBUGGERS.items():
        path = shutil.which(name)
        if path is not None:
            _run([path, *command(target.pid, page)], target, work)
            return
    raise AmpDoctorError(
        "attaching to a running process needs a debugger, and there is neither gdb nor lldb",
        hint="install one (apt install gdb), or start the training with AMPDOCTOR=arm or ampdoctor.arm() next time",
    )


def _gdb(pid: int, page: Path) -> list[str]:
    commands = [
        "set pagination off",
        "set confirm off",
        "set debuginfod enabled off",
        # Torch brings libraries of gigabytes, whose symbols nobody asks for.
        "set auto-solib-add off",
        f"attach {pid}",
        r"sharedlibrary /\(libpython\|libc[.-]\|ld-musl\)",
        f"set $page = ((void *(*)(long, long, int, int, int, long)) mmap){_mapping(page)}",
        f"restore {page} binary $page",
        "set $pending = ((int (*)(void *, void *)) Py_AddPendingCall)((void *) PyRun_SimpleString, $page)",
        'printf "ampdoctor: let in %d\\n", $pending',
        # Of the values that have the kernel repeat the call, which was disturbed by the debugger and nobody else.
        f"set $waits = $orig_rax == {_FUTEX} && $rax <= -512 && $rax >= -516",
        f"set $rax = $waits ? {_INTERRUPTED} : $rax",
        "set $orig_rax = $waits ? -1 : $orig_rax",
        "detach",
    ]
    return ["-nx", "-batch", *(part for command in commands for part in ("-ex", command))]


def _lldb(pid: int, page: Path) -> list[str]:
    room = f"((unsigned long (*)(long, long, int, int, int, long)) mmap){_mapping(page)}"
    commands = [
        "settings set target.preload-symbols false",
        "settings set symbols.enable-external-lookup false",
        f"process attach --pid {pid}",
        f"expression -- unsigned long $page = {room}",
        f"memory write --infile {page} --size {page.stat().st_size} $page",
        # A function that is not called but passed on has to be a number: lldb knows no type for it.
        "expression -- unsigned long $run = (unsigned long) &PyRun_SimpleString",
        "expression -- int $pending = ((int (*)(unsigned long, unsigned long)) Py_AddPendingCall)($run, $page)",
        "expression -- $pending",  # not by `script`: Debian's lldb comes without its Python
        "detach",
        "quit",
    ]
    return ["--no-lldbinit", "--batch", *(part for command in commands for part in ("--one-line", command))]


def _mapping(page: Path) -> str:
    """Return the arguments of the `mmap` that makes room for the file `page`."""
    return f"(0, {page.stat().st_size}, {_READ_WRITE}, {_PRIVATE_ANONYMOUS}, -1, 0)"


_DEBUGGERS: dict[str, Callable[[int, Path], Sequence[str]]] = {"gdb": _gdb, "lldb": _lldb}


def _run(command: Sequence[str], target: Process, work: Path) -> None:
    said = work / "said"
    # A debugger that dies in the middle leaves the process in the middle of a call that it never made. So ours is in a
    # session of its own, where Ctrl-C doesn't reach it, and writes to a file, where it can go on when we are killed.
    with said.open("wb") as output:
        debugger = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _see_it_out(debugger)
    except subprocess.TimeoutExpired:
        raise AmpDoctorError(f"the debugger has not come to an end with {target.title}") from None
    printed = said.read_text(encoding="utf-8", errors="replace")
    if not any(done in printed for done in _DONE):
        raise AmpDoctorError(*_why(printed, target, Path(command[0]).name))


def _see_it_out(debugger: subprocess.Popen[bytes]) -> None:
    """Wait for the end of `debugger`, and let whoever is in a hurry go only then."""
    interrupted: KeyboardInterrupt | None = None
    until_s = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            debugger.wait(max(0.0, until_s - time.monotonic()))
            break
        except KeyboardInterrupt as error:
            interrupted = error
        except subprocess.TimeoutExpired:
            debugger.terminate()  # on which it leaves the process first
            raise
    if interrupted is not None:
        raise interrupted


def _why(output: str, target: Process, name: str) -> tuple[str, str]:
    """Return what went wrong and what helps, from what the debugger has printed."""
    if target.ended():
        return f"{target.title} has ended", ""
    tracer = target.status("TracerPid")
    if tracer not in ("", "0"):
        return f"{target.title} is being debugged by process {tracer}", "leave that debugger first"
    if "not permitted" in output or "ermission denied" in output or "attach failed" in output:
        return f"the system does not allow {name} to attach to {target.title}", _what_allows_it()
    if "Py_AddPendingCall" in output or "PyRun_SimpleString" in output:
        return f"{name} finds no Python interpreter in {target.title}", "give the PID of the training itself"
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "it printed nothing")
    return f"{name} could not get into {target.title}: {last}", "start the training with AMPDOCTOR=arm next time"


def _what_allows_it() -> str:
    try:
        scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text(encoding="ascii").strip()
    except OSError:
        scope = "0"
    if scope == "1":
        return (
            "sudo sysctl kernel.yama.ptrace_scope=0; or start the training with AMPDOCTOR=arm, which needs no debugger"
        )
    if scope in {"2", "3"}:
        return f"ptrace_scope is {scope}; start the training with AMPDOCTOR=arm next time, which needs no debugger"
    return "in a container: docker run --cap-add=SYS_PTRACE; or start the training with AMPDOCTOR=arm next time"
