"""Who may ask: the machine itself, or whoever has the token; and what a page may load: nothing from elsewhere."""

from __future__ import annotations

import hmac
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from flask import Flask, Response, make_response, redirect, request

from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from werkzeug.wrappers import Response as AnyResponse

COOKIE = "ampdoctor-token"

_REFUSAL = "this dashboard asks for its token: open the address that `ampdoctor view` printed\n"


def is_loopback(host: str) -> bool:
    """Whether `host` names this machine and nothing else."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_host(host: str, token: str | None) -> None:
    """Refuse to serve others without a token.

    Raises:
        AmpDoctorError: it would.
    """
    if not is_loopback(host) and not token:
        raise AmpDoctorError(
            f"--host {host} lets others in, and there is no token",
            hint="add --token with a secret of your own, or leave --host out and use `ssh -L`",
        )


def guard(server: Flask, token: str | None, scripts: Sequence[str], host: str = "127.0.0.1") -> None:
    """Check every request, and say with every answer what the browser may do with it.

    Args:
        server: what answers.
        token: the secret that everybody must have; None for none.
        scripts: hashes of the scripts that are part of the page itself, as a policy writes them.
        host: where it is served. On this machine only, no other name may lead to it: a page from elsewhere could have
            one that does.
    """
    policy = "; ".join(
        (
            "default-src 'self'", f"script-src 'self' {' '.join(scripts)}", "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:", "font-src 'self' data:", "connect-src 'self'", "object-src 'none'",
            "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
        )
    )  # fmt: skip

    @server.before_request
    def check() -> AnyResponse | None:
        if is_loopback(host) and not is_loopback(_asked_host()):
            return _refused("this dashboard is served to its own machine only\n")
        if token is None:
            return None
        given = request.args.get("token")
        if given is not None and _same(given, token):
            return _let_in(token)
        held = (request.cookies.get(_cookie(), ""), _bearer())
        return None if any(_same(one, token) for one in held) else _refused(_REFUSAL)

    @server.after_request
    def tell(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "same-origin"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response


def _let_in(token: str) -> AnyResponse:
    """Give out the cookie, and take the token out of the address, where others would see it."""
    left = [(name, value) for name, value in request.args.items(multi=True) if name != "token"]
    query = urlencode(left)
    response = redirect(request.path + (f"?{query}" if query else ""))
    response.set_cookie(_cookie(), token, httponly=True, samesite="Strict")
    return response


def _cookie() -> str:
    """Return the name of the cookie: browsers give those of one port to all others of the same host."""
    try:
        port = urlsplit(f"//{request.headers.get('Host', '')}").port
    except ValueError:
        port = None
    return f"{COOKIE}-{port or 80}"


def _asked_host() -> str:
    """Return the name that the request came to, without its port; empty where it makes no sense."""
    try:
        return urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
    except ValueError:
        return ""


def _bearer() -> str:
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    return value if kind.lower() == "bearer" else ""


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _refused(why: str) -> Response:
    response = make_response(why, 403)
    response.mimetype = "text/plain"
    return response
