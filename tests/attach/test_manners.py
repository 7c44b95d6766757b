"""What the training may have set up for itself, and what may happen to either side, at the places where it matters."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

from ampdoctor.attach.debuggers import _see_it_out
from ampdoctor.attach.payload import payload
from ampdoctor.attach.process import Process
from ampdoctor.attach.visit import Visit
from ampdoctor.record.attached.boundaries import Boundaries
from ampdoctor.record.attached.door import armed_address, knock, listen
from ampdoctor.record.attached.session import Session
from ampdoctor.record.launch import Recording
from ampdoctor.record.recorder import STRICT_VARIABLE
from tests.e2e.command import environment

if TYPE_CHECKING:
    from pathlib import Path

ROOT = __file__.rpartition("/tests/")[0]


def _printed(source: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", source], env=environment(**variables), capture_output=True, text=True,
        check=False, timeout=20,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("own_path", [ROOT, ""])
def test_the_payload_leaves_the_users_names_and_path_alone(own_path: str, tmp_path: Path) -> None:
    source = f"""
import sys, time
def exec(*_): print("the user's exec was called")
before = list(sys.path)
{payload(tmp_path / "door")}
while "ampdoctor.record.attached.agent" not in sys.modules: time.sleep(0.01)
time.sleep(0.1)
import threading
print(sys.path == before, threading.current_thread() is threading.main_thread())
"""
    with listen(tmp_path / "door"):
        assert _printed(source, PYTHONPATH=own_path) == "True True\n"


def test_a_visitor_that_has_gone_leaves_nothing_open(tmp_path: Path) -> None:
    source = f"import gc, time\n{payload(tmp_path / 'door')}\ntime.sleep(0.1); gc.collect()"
    assert _printed(source) == ""


def test_telling_a_visitor_that_has_gone_kills_nobody() -> None:
    source = """
import signal, socket
from ampdoctor.record.attached.agent import _Teller
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
training, visitor = socket.socketpair()
visitor.close()
_Teller(training)("recording")
training.close()
print("alive")
"""
    assert _printed(source) == "alive\n"


def test_a_forked_child_can_be_attached_to_and_holds_no_visitor() -> None:
    source = """
import os, socket
from ampdoctor.record.attached import agent
training, visitor = socket.socketpair()
agent._busy.acquire()
agent._guests[training] = None
child = os.fork()
if not child:
    os._exit(not (agent._busy.acquire(blocking=False) and training.fileno() == -1 and not agent._guests))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), training.fileno() != -1, agent._busy.locked())
training.close(), visitor.close()
"""
    assert _printed(source) == "0 True True\n"


def test_a_second_visitor_of_an_armed_process_is_told_of_the_first() -> None:
    source = "import ampdoctor, sys; ampdoctor.arm(); print('armed', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", source], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as armed:
        assert armed.stdout is not None
        assert armed.stdout.readline() == "armed\n"
        first, second = (knock(armed_address(armed.pid)) for _ in range(2))
        assert first is not None
        assert second is not None
        with first, second:
            second.settimeout(20.0)
            assert json.loads(second.recv(1 << 16))["event"] == "refused"


def test_a_debugger_is_seen_out_before_ctrl_c_is_obeyed() -> None:
    debugger = subprocess.Popen(["sleep", "0.4"], start_new_session=True)
    threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        _see_it_out(debugger)
    assert debugger.poll() == 0


def test_a_process_that_has_ended_is_over_whoever_holds_its_connection() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        visit = Visit(Process(ended.pid, ("true",), None), ours)
        assert visit.wait(0.0)
        assert visit.lost()


class _OwnUpdate(torch.amp.GradScaler):
    def update(self, new_scale: Any = None) -> None:
        self._per_optimizer_states.clear()


class _Unknowable(torch.amp.GradScaler):
    def is_enabled(self) -> bool:
        if sys._getframe(1).f_globals["__name__"].startswith("ampdoctor"):
            raise RuntimeError("not for you")
        return super().is_enabled()


def _boundaries(kind: type[torch.amp.GradScaler], *, anew: bool = False, updates: bool = True) -> int:
    reached: list[None] = []
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    boundaries = Boundaries(lambda _: reached.append(None))
    boundaries.watch()
    try:
        scaler = kind("cpu", init_scale=2.0)
        for _ in range(4):
            scaler = kind("cpu", init_scale=2.0) if anew else scaler
            scaler.scale(net(torch.ones(1, 2)).sum()).backward()
            scaler.step(optimizer)
            if updates:
                scaler.update()
    finally:
        boundaries.leave()
    return len(reached)


def test_steps_end_whatever_the_scaler_is() -> None:
    assert _boundaries(torch.amp.GradScaler) == 4
    assert _boundaries(_OwnUpdate) == 3
    assert _boundaries(torch.amp.GradScaler, anew=True, updates=False) == 3
    assert _boundaries(_Unknowable) == 4


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_steps_of_a_compiled_optimizer_end_where_gradients_are_cleared() -> None:
    told: list[list[torch.Tensor] | None] = []
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step = torch.compile(optimizer.step, backend="eager")
    boundaries = Boundaries(told.append)
    boundaries.watch()
    try:
        for _ in range(4):
            optimizer.zero_grad()
            net.zero_grad()
            net(torch.ones(1, 2)).sum().backward()
            step()
        assert told == [[net.weight, net.bias]] * 3
        for _ in range(2):
            optimizer.zero_grad()
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        assert told[4:] == [None, None]
    finally:
        boundaries.leave()


def test_gradients_that_are_cleared_without_an_update_end_no_step() -> None:
    reached: list[list[torch.Tensor] | None] = []
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
    boundaries = Boundaries(reached.append)
    boundaries.watch()
    try:
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.ones(1, 2)).sum().backward()
        assert not reached

        def evaluate() -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = net(torch.ones(1, 2)).square().sum()
            loss.backward()
            return loss

        optimizer.step(evaluate)
        assert reached == [None]
    finally:
        boundaries.leave()


def test_a_recorder_that_fails_midway_is_taken_off_and_tells_the_visitor(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(STRICT_VARIABLE, raising=False)
    wrapped = torch.amp.GradScaler.update, torch.autograd.backward, torch.optim.Optimizer.zero_grad
    told: list[tuple[str, dict[str, Any]]] = []
    session = Session(Recording(out=tmp_path / "missing"), None, lambda event, **more: told.append((event, more)))
    session.begin()
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for _ in range(4):
        optimizer.zero_grad()
        scaler.scale(net(torch.ones(1, 2)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert [event for event, _ in told] == ["waiting", "failed", "ended"]
    assert "FileNotFoundError" in told[1][1]["reason"]
    assert capfd.readouterr().err == ""
    assert (torch.amp.GradScaler.update, torch.autograd.backward, torch.optim.Optimizer.zero_grad) == wrapped
    assert not logging.getLogger("ampdoctor").filters


def test_a_scaler_step_that_the_user_has_replaced_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    original = torch.amp.GradScaler.step

    def step(*args: Any) -> Any:
        return original(*args)

    monkeypatch.setattr(torch.amp.GradScaler, "step", step)
    assert _boundaries(torch.amp.GradScaler) == 4


def test_a_frozen_model_that_only_a_function_holds_is_found() -> None:
    source = """
import gc
from ampdoctor.record.live_objects import live_instances
class Model: pass
def make():
    model = Model()
    return lambda: model
step = make()
gc.freeze()
print(len(live_instances(Model)))
gc.unfreeze()
"""
    assert _printed(source) == "1\n"
