"""What is run inside the training process to let us in: it starts a thread, and nothing else.

It runs on the main thread between two bytecodes, wherever that happens to be. So it takes no lock that the thread may
hold already (`threading.Thread.start` takes one), imports nothing that may be half imported, and never raises.
"""

from __future__ import annotations

import sys
from pathlib import Path

_PAYLOAD = """
def _serve():
    import json, socket, sys

    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect({address!r})
    except OSError:
        return  # whoever wanted to come in has gone
    path = [] if sys.version_info[:2] != {version!r} else [{package!r}]
    sys.path += path
    try:
        from ampdoctor.record.attached.agent import serve
    except BaseException as error:
        told = dict(event="refused", reason="ampdoctor cannot be imported there: %s" % error, python=sys.executable)
        connection.sendall((json.dumps(told) + "\\n").encode())
        connection.close()
        return
    finally:
        for entry in path:
            sys.path.remove(entry)
    serve(connection)


import _thread

_thread.start_new_thread(_serve, ())
"""

_CAREFULLY = """
try:
    exec({source!r}, {{}})
except BaseException:
    pass
"""


def payload(address: Path) -> str:
    """Return the source of what lets us in, once we listen at `address`.

    Where ampdoctor isn't installed for that Python, ours is used, provided that the versions agree.
    """
    package = str(Path(__file__).resolve().parents[2])
    source = _PAYLOAD.format(address=str(address), version=tuple(sys.version_info[:2]), package=package)
    return _CAREFULLY.format(source=source)
