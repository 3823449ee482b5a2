"""Who may see the pages: a password where one is set, and never a page of another site.

NiceGUI takes a WebSocket from any site. On a loopback address that would let every page that a browser has open talk to
the dashboard, so whatever a browser sends must come from the dashboard's own pages, under a name that is its own.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import time
from collections import OrderedDict
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

COOKIE: Final = "locus_dashboard"
MOST_VISITS: Final = 200
VISIT_S: Final = 12 * 3600.0
MOST_FORM_BYTES: Final = 4_096
WRONG_S: Final = 1.0
"""How long an answer to a wrong password takes: nobody tries many."""

_PAGE: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Locus: sign in</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<style>body{{font:16px/1.5 system-ui,sans-serif;display:grid;place-items:center;min-height:90vh;margin:0}}
form{{display:grid;gap:12px;width:min(300px,86vw)}}h1{{font-size:20px;margin:0}}
input,button{{font:inherit;padding:10px;border-radius:8px;border:1px solid #888}}
button{{background:#2357c5;color:#fff;border-color:#2357c5}}p{{margin:0;color:#c22}}</style></head>
<body><form method="post" action="login"><h1>Locus dashboard</h1>{said}<label for="p">Password</label>
<input id="p" name="password" type="password" autocomplete="current-password" required autofocus>
<button>Sign in</button></form></body></html>"""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Gate:
    """Stands before an application and lets through who may come in.

    Args:
        app: what is behind it.
        password: what visitors have to know; None lets everybody in who came under a name of this machine.
    """

    def __init__(self, app: ASGIApp, password: str | None) -> None:
        self._app = app
        self._password = password
        self._visits: OrderedDict[str, float] = OrderedDict()
        self._wrong = anyio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request or one WebSocket."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._own_name(headers) or not self._own_page(headers):
            await self._refuse(scope, send, 403, b"This address is not the dashboard's own; see --host.")
        elif self._password is None or self._known(headers.get("cookie", "")):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._refuse(scope, send, 403, b"")
        elif scope["path"].rstrip("/").endswith("/login") and scope["method"] == "POST":
            await self._sign_in(receive, send)
        elif scope["path"].rstrip("/").endswith("/login"):
            await _answer(send, 200, _PAGE.format(said="").encode())
        else:
            await _answer(send, 303, b"", [(b"location", b"/login")])

    def _own_name(self, headers: dict[str, str]) -> bool:
        """Without a password the page is this machine's: a foreign name that resolves to it is a trick."""
        if self._password is not None:
            return True
        return is_loopback(urlsplit(f"//{headers.get('host', '')}").hostname or "")

    @staticmethod
    def _own_page(headers: dict[str, str]) -> bool:
        origin = headers.get("origin")
        return origin is None or urlsplit(origin).netloc == headers.get("host")

    def _known(self, cookies: str) -> bool:
        try:
            found = SimpleCookie(cookies).get(COOKIE)
        except CookieError:
            return False
        until_s = self._visits.get(found.value) if found is not None else None
        return until_s is not None and until_s > time.monotonic()

    async def _sign_in(self, receive: Receive, send: Send) -> None:
        body = b""
        more = True
        while more and len(body) <= MOST_FORM_BYTES:
            event = await receive()
            if event["type"] != "http.request":
                return
            body += event.get("body", b"")
            more = event.get("more_body", False)
        given = parse_qs(body[:MOST_FORM_BYTES].decode(errors="replace")).get("password", [""])[0]
        assert self._password is not None
        if not hmac.compare_digest(given.encode(), self._password.encode()):
            async with self._wrong:  # one after the other, however many ask at once
                await anyio.sleep(WRONG_S)
            said = '<p role="alert">That is not the password.</p>'
            await _answer(send, 401, _PAGE.format(said=said).encode())
            return
        visit = secrets.token_urlsafe(32)
        self._visits[visit] = time.monotonic() + VISIT_S
        while len(self._visits) > MOST_VISITS:
            self._visits.popitem(last=False)
        cookie = f"{COOKIE}={visit}; Path=/; HttpOnly; SameSite=Strict; Max-Age={int(VISIT_S)}"
        await _answer(send, 303, b"", [(b"location", b"/"), (b"set-cookie", cookie.encode())])

    @staticmethod
    async def _refuse(scope: Scope, send: Send, status: int, body: bytes) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await _answer(send, status, body)


async def _answer(send: Send, status: int, body: bytes, more: list[tuple[bytes, bytes]] | None = None) -> None:
    headers: list[tuple[bytes, bytes]] = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *(more or []),
    ]
    start: dict[str, Any] = {"type": "http.response.start", "status": status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})
