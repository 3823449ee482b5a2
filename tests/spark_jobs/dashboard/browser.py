"""Debian's Chromium for tests, driven by Playwright, and the dashboard as a process of its own.

Playwright would rather use a browser it downloads; the one of the system does as well, and needs no internet.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.peers import REPOSITORY
from tests.mqtt_wire import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

SECONDS = 90.0
"""How long anything may take: other work may be going on."""
LOADS = 5
"""How often a page is loaded whose loading was cut off."""
ARTEFACTS = REPOSITORY / "test-artefacts" / "dashboard"
NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"
"""Chromium drops what it is loading, from this machine too, when an interface of the machine gets another address."""


def chromium_path() -> str | None:
    """Where Chromium is; None where it is not."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


needs_chromium = pytest.mark.skipif(
    chromium_path() is None, reason="Chromium is not installed: apt-get install chromium"
)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The browser, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-device-scale-factor=1"]
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=options, timeout=SECONDS * 1000)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def dashboard(directory: Path, broker_port: int, *more: str) -> Iterator[str]:
    """`locus dashboard` for a broker on this machine; its address."""
    command = [sys.executable, "-m", "clients.cli", "dashboard", "--port", "0", "--broker", f"127.0.0.1:{broker_port}"]
    log = directory / "dashboard.log"
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *more], stdout=output, stderr=subprocess.STDOUT, cwd=REPOSITORY)
    try:

        def said() -> re.Match[str] | None:
            assert process.poll() is None, f"the dashboard ended: {log.read_text()}"
            return re.search(r"Dashboard: (http://\S+?)/ ", log.read_text())

        wait_for(lambda: said() is not None, "the dashboard to start", SECONDS)
        found = said()
        assert found is not None
        yield found[1]
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert process.returncode == 0, log.read_text()
    assert "Traceback" not in log.read_text(), log.read_text()


class Visit:
    """A page that is looked at, and what went wrong on it."""

    def __init__(self, browser: Browser, address: str, width: int, height: int, **options: Any) -> None:
        self.address = address
        self.context = browser.new_context(viewport={"width": width, "height": height}, **options)
        self.context.set_default_timeout(SECONDS * 1000)
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.foreign: list[str] = []
        self.cut_off = 0
        """Requests that ended because something about the machine's network changed."""
        self.page.on("console", lambda m: self._complaint(m.text) if m.type in ("error", "warning") else None)
        self.page.on("requestfailed", lambda request: self._failed(request.failure))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self._note(request.url))
        self.page.on("websocket", lambda socket: self._note(socket.url))

    def _note(self, url: str) -> None:
        own = self.address.partition("://")[2]
        if not url.startswith((f"http://{own}/", f"ws://{own}/", "data:", "blob:")):
            self.foreign.append(url)

    def _complaint(self, text: str) -> None:
        if NETWORK_CHANGED not in text:
            self.problems.append(text)

    def _failed(self, reason: str | None) -> None:
        self.cut_off += reason == NETWORK_CHANGED

    def go(self, path: str) -> Page:
        """Open a view and wait until it is there."""
        from playwright.sync_api import Error

        for attempt in range(LOADS):
            before = self.cut_off
            try:
                self.page.goto(f"{self.address}{path}")
            except Error as error:
                if NETWORK_CHANGED not in str(error) or attempt + 1 == LOADS:
                    raise
                continue
            if self.cut_off == before:
                break
        self.page.wait_for_selector("#content h1", state="attached")
        return self.page

    def text(self, mark: str) -> str:
        """The text of an element that tests look for."""
        return self.page.locator(f"[data-mark={mark}]").inner_text()

    def wait(self, condition: Any, what: str, seconds: float = SECONDS) -> None:
        """Wait while the browser goes on."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}, in vain; problems: {self.problems}"
            self.page.wait_for_timeout(100)

    def check(self) -> None:
        """Nothing went wrong, and nothing was asked of anybody else."""
        assert self.foreign == []
        assert self.problems == []

    def shoot(self, name: str, *, whole: bool = False) -> None:
        """Keep a picture, of the whole page or of what fits on the screen."""
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=whole)

    def close(self) -> None:
        self.context.close()
