"""Serving the dashboard until somebody stops it."""

from __future__ import annotations

import logging
import socket
import sys
import webbrowser
from dataclasses import dataclass
from typing import TYPE_CHECKING

import waitress

from ampdoctor.errors import AmpDoctorError
from ampdoctor_dashboard.app import JUDGE, make_app
from ampdoctor_dashboard.security import check_host
from ampdoctor_dashboard.words import check_language

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ampdoctor.config import Config

THREADS = 8
"""Requests that are answered at a time: a page asks for its figures all at once."""


SWITCH_S = 0.0005
"""A diagnosis that is being made lets go of Python after this long, so that no page waits (default: 0.005)."""


@dataclass(frozen=True)
class Serving:
    """How the dashboard is served.

    Attributes:
        host: on which address.
        port: on which port; 0 for one that is free.
        token: secret that every request must bring; None for none.
        lang: language; the browser's where empty.
        browse: open a browser.
    """

    host: str = "127.0.0.1"
    port: int = 8050
    token: str | None = None
    lang: str = ""
    browse: bool = True


def serve(root: Path, how: Serving, tell: Callable[[str], None], config: Config | None = None) -> None:
    """Serve the runs in `root`; returns when interrupted.

    Args:
        root: a run, or a folder of runs.
        how: the address, and who may ask.
        tell: called with the address once it answers.
        config: settings of the diagnosis.

    Raises:
        AmpDoctorError: the folder is not there, others would be let in without a token, or the port is taken.
    """
    check_host(how.host, how.token)
    check_language(how.lang)
    if not root.is_dir():
        raise AmpDoctorError(f"{root} is no folder", hint="give a run, or the folder that holds your runs")
    sys.setswitchinterval(SWITCH_S)
    listening = _listen(how.host, how.port)
    app = make_app(root, lang=how.lang, token=how.token, host=how.host, config=config)
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # a page asks for more at once than there are threads
    server = waitress.create_server(app.server, sockets=[listening], threads=THREADS, ident="ampdoctor")
    address = _address(how, listening.getsockname()[1])
    tell(address)
    if how.browse:
        webbrowser.open(address)
    try:
        server.run()
    finally:
        server.close()
        app.server.extensions[JUDGE].close()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise AmpDoctorError(
            f"cannot listen on {host}:{port}: {error.strerror or error}", hint="choose another port with --port"
        ) from None
    return listening


def _address(how: Serving, port: int) -> str:
    host = f"[{how.host}]" if ":" in how.host else how.host
    return f"http://{host}:{port}/" + (f"?token={how.token}" if how.token else "")
