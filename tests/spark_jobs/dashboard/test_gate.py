"""Who gets to the pages: nobody from another site, and nobody without the password where there is one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.dashboard import gate as gate_module
from spark_jobs.dashboard.command import UsageError, check_host, password_of
from spark_jobs.dashboard.gate import COOKIE, MOST_VISITS, Gate, is_loopback

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "correct horse"


async def behind(scope: Any, _receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
    else:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"inside"})


async def ask(gate: Gate, path: str = "/", kind: str = "http", body: bytes = b"", **headers: str) -> dict[str, Any]:
    """What comes back: `status`, `body`, `headers`, or `accepted` for a WebSocket."""
    found: dict[str, Any] = {"body": b"", "headers": {}, "accepted": False}
    given = {"host": "127.0.0.1:8080", **headers}
    scope = {
        "type": kind,
        "path": path,
        "method": "POST" if body else "GET",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(event: Any) -> None:
        found["accepted"] = found["accepted"] or event["type"] == "websocket.accept"
        found["status"] = event.get("status", found.get("status"))
        found["body"] += event.get("body", b"")
        found["headers"].update({name.decode(): value.decode() for name, value in event.get("headers", [])})

    await gate(scope, receive, send)
    return found


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "[::1]:8080"])
async def test_this_machine_needs_no_password(host: str) -> None:
    gate = Gate(behind, None)
    assert (await ask(gate, host=host))["body"] == b"inside"
    assert (await ask(gate, kind="websocket", host=host, origin=f"http://{host}"))["accepted"]


async def test_a_page_of_another_site_does_not_get_through() -> None:
    gate = Gate(behind, None)
    assert not (await ask(gate, kind="websocket", origin="http://evil.example"))["accepted"]
    assert (await ask(gate, origin="http://evil.example"))["status"] == 403
    assert (await ask(gate, origin="null"))["status"] == 403


async def test_a_foreign_name_for_this_machine_does_not_get_through() -> None:
    rebound = await ask(Gate(behind, None), host="evil.example:8080", origin="http://evil.example:8080")
    assert rebound["status"] == 403


async def test_with_a_password_everything_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "WRONG_S", 0.0)
    gate = Gate(behind, SECRET)
    assert (await ask(gate, host="board.example"))["headers"]["location"] == "/login"
    assert not (await ask(gate, kind="websocket"))["accepted"]
    assert b"Password" in (await ask(gate, "/login"))["body"]
    wrong = await ask(gate, "/login", body=b"password=wrong")
    assert wrong["status"] == 401
    assert "set-cookie" not in wrong["headers"]
    right = await ask(gate, "/login", body=b"password=correct+horse")
    cookie = right["headers"]["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    visit = cookie.partition(";")[0]
    assert (await ask(gate, host="board.example", cookie=visit))["body"] == b"inside"
    assert (await ask(gate, kind="websocket", cookie=visit))["accepted"]
    for forged in (f"{COOKIE}=x", f"{COOKIE}=", "a=b", "\x01;;="):
        assert (await ask(gate, cookie=forged))["status"] == 303


async def test_only_so_many_visits_are_remembered() -> None:
    gate = Gate(behind, SECRET)
    first = (await ask(gate, "/login", body=b"password=correct+horse"))["headers"]["set-cookie"].partition(";")[0]
    for _ in range(MOST_VISITS):
        await ask(gate, "/login", body=b"password=correct+horse")
    assert (await ask(gate, cookie=first))["status"] == 303


def options(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"password_file": None, **given})


def test_other_machines_only_with_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCUS_DASHBOARD_PASSWORD", raising=False)
    check_host("127.0.0.1", None)
    for host in ("0.0.0.0", "::", "192.168.1.4", "board.example", ""):
        assert not is_loopback(host)
        with pytest.raises(UsageError, match="password"):
            check_host(host, None)
        check_host(host, SECRET)
    assert password_of(options()) is None
    (tmp_path / "secret").write_text(f"{SECRET}\nmore\n")
    assert password_of(options(password_file=tmp_path / "secret")) == SECRET
    (tmp_path / "secret").write_text("short")
    with pytest.raises(UsageError, match="too short"):
        password_of(options(password_file=tmp_path / "secret"))
    with pytest.raises(UsageError, match="cannot read"):
        password_of(options(password_file=tmp_path / "nowhere"))
    monkeypatch.setenv("LOCUS_DASHBOARD_PASSWORD", SECRET)
    assert password_of(options()) == SECRET
