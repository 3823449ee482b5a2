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
ARTEFACTS = REPOSITORY / "test-artefacts" / "dashboard"


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
        self.page.on("console", lambda m: self.problems.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self._note(request.url))
        self.page.on("websocket", lambda socket: self._note(socket.url))

    def _note(self, url: str) -> None:
        own = self.address.partition("://")[2]
        if not url.startswith((f"http://{own}/", f"ws://{own}/", "data:", "blob:")):
            self.foreign.append(url)

    def go(self, path: str) -> Page:
        """Open a view and wait until it is there."""
        self.page.goto(f"{self.address}{path}")
        self.page.wait_for_selector("#content h1", state="attached")
        return self.page

    def text(self, mark: str) -> str:
        """The text of an element that tests look for."""
        return self.page.locator(f"[data-mark={mark}]").inner_text()

    def wait(self, condition: Any, what: str) -> None:
        """Wait while the browser goes on."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"waited {SECONDS:g} s for {what}, in vain; problems: {self.problems}"
            self.page.wait_for_timeout(100)

    def check(self) -> None:
        """Nothing went wrong, and nothing was asked of anybody else."""
        assert self.foreign == []
        assert self.problems == []

    def shoot(self, name: str) -> None:
        """Keep a picture."""
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=ARTEFACTS / f"{name}.png")

    def close(self) -> None:
        self.context.close()
