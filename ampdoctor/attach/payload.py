"""What is run inside the training process to let us in: it starts a thread, and nothing else.

It runs on the main thread between two bytecodes, wherever that happens to be. So it takes no lock that the thread may
hold already (`threading.Thread.start` takes one), uses nothing that may be half imported, and never raises.
"""

from __future__ import annotations

import sys
from pathlib import Path

_PAYLOAD = """
def _serve():
    try:
        _meet()
    except BaseException:
        pass  # it would be printed there


def _meet():
    import json, socket, sys

    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect({address!r})
    except OSError:
        connection.close()
        return  # whoever wanted to come in has gone
    ours = {package!r}
    lent = sys.version_info[:2] == {version!r} and ours not in sys.path
    if lent:
        sys.path.append(ours)
    try:
        from ampdoctor.record.attached.agent import serve
    except BaseException as error:
        told = dict(event="refused", reason="ampdoctor cannot be imported there: %s" % error, python=sys.executable)
        with connection:
            connection.sendall((json.dumps(told) + "\\n").encode(), socket.MSG_NOSIGNAL)
        return
    finally:
        if lent and ours in sys.path:
            sys.path.remove(ours)
    serve(connection)


import _thread
import threading  # it takes whatever thread imports it first for the main one

_thread.start_new_thread(_serve, ())
"""

_CAREFULLY = """
try:
    __import__("builtins").exec({source!r}, {{}})
except:
    pass
"""
"""Runs among the variables of the user's script, where `exec` may be a function of theirs."""


def payload(address: Path) -> str:
    """Return the source of what lets us in, once we listen at `address`.

    Where ampdoctor isn't installed for that Python, ours is used, provided that the versions agree.
    """
    package = str(Path(__file__).resolve().parents[2])
    source = _PAYLOAD.format(address=str(address), version=tuple(sys.version_info[:2]), package=package)
    return _CAREFULLY.format(source=source)
