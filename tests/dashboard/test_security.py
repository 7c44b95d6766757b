"""Who is let in, and what a page may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ampdoctor.errors import AmpDoctorError
from ampdoctor_dashboard.app import make_app
from ampdoctor_dashboard.security import COOKIE, check_host, is_loopback

if TYPE_CHECKING:
    from pathlib import Path

    from flask.testing import FlaskClient

TOKEN = "correct horse"

ASKED = ["/", "/timeline", "/_dash-layout", "/_dash-dependencies", "/assets/shell.js", "/nowhere"]

CALLBACK = {
    "output": "..page.children...shown.data..",
    "outputs": [{"id": "page", "property": "children"}, {"id": "shown", "property": "data"}],
    "inputs": [
        {"id": "location", "property": "pathname", "value": "/runs"},
        {"id": "view", "property": "data", "value": {}},
    ],
    "state": [{"id": "shown", "property": "data", "value": None}],
    "changedPropIds": ["view.data"],
}


def client(root: Path, token: str | None = None, host: str = "127.0.0.1") -> FlaskClient:
    """Return what asks a dashboard."""
    found: FlaskClient = make_app(root, token=token, host=host).server.test_client()
    return found


@pytest.mark.parametrize("path", ASKED)
def test_without_the_token_nothing_is_answered(tmp_path: Path, path: str) -> None:
    asking = client(tmp_path, TOKEN, "0.0.0.0")
    assert asking.get(path).status_code == 403
    assert asking.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 403
    asking.set_cookie(f"{COOKIE}-80", "wrong")
    assert asking.get(path).status_code == 403


def test_callbacks_ask_for_the_token_too(tmp_path: Path) -> None:
    asking = client(tmp_path, TOKEN, "0.0.0.0")
    assert asking.post("/_dash-update-component", json=CALLBACK).status_code == 403
    let_in = {"Authorization": f"Bearer {TOKEN}"}
    assert asking.post("/_dash-update-component", json=CALLBACK, headers=let_in).status_code == 200


def test_the_address_with_the_token_lets_in_and_hides_it(tmp_path: Path) -> None:
    asking = client(tmp_path, TOKEN, "0.0.0.0")
    answer = asking.get("/timeline", query_string={"run": "a b&c", "token": TOKEN})
    assert answer.status_code == 302
    assert TOKEN not in answer.headers["Location"]
    assert "run=a+b%26c" in answer.headers["Location"]
    assert "HttpOnly" in answer.headers["Set-Cookie"]
    assert "SameSite=Strict" in answer.headers["Set-Cookie"]
    assert asking.get("/timeline").status_code == 200


def test_two_dashboards_of_one_host_do_not_log_each_other_out(tmp_path: Path) -> None:
    one, other = (make_app(tmp_path, token=token, host="0.0.0.0").server for token in (TOKEN, "other"))
    asking, also = one.test_client(), other.test_client()
    first, second = {"Host": "gpu:8050"}, {"Host": "gpu:8051"}
    given = asking.get("/", query_string={"token": TOKEN}, headers=first).headers["Set-Cookie"]
    taken = also.get("/", query_string={"token": "other"}, headers=second).headers["Set-Cookie"]
    assert given.partition("=")[0] != taken.partition("=")[0]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_on_this_machine_no_other_name_leads_to_it(tmp_path: Path, host: str) -> None:
    assert client(tmp_path).get("/", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:8050", "127.0.0.1:8050", "127.0.0.1", "[::1]:8050", "[::1]"])
def test_its_own_names_do(tmp_path: Path, host: str) -> None:
    assert client(tmp_path).get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("path", ASKED)
def test_every_answer_forbids_what_comes_from_elsewhere(tmp_path: Path, path: str) -> None:
    with client(tmp_path).get(path) as answer:
        headers = answer.headers
    policy = headers["Content-Security-Policy"]
    script = next(part for part in policy.split("; ") if part.startswith("script-src"))
    assert "default-src 'self'" in policy
    assert "unsafe" not in script
    assert "http" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_others_are_let_in_with_a_token_only() -> None:
    check_host("127.0.0.1", None)
    check_host("0.0.0.0", TOKEN)
    for host in ("0.0.0.0", "192.168.1.5", "example.org", "::"):
        with pytest.raises(AmpDoctorError, match="--host"):
            check_host(host, None)
    with pytest.raises(AmpDoctorError):
        check_host("0.0.0.0", "")


@pytest.mark.parametrize(("host", "own"), [("127.8.9.1", True), ("::1", True), ("[::1]", True), ("0.0.0.0", False)])
def test_which_hosts_are_this_machine(host: str, own: bool) -> None:
    assert is_loopback(host) is own
