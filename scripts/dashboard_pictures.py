"""Takes the pictures of docs/guides/dashboard.md: `locus demo` with Spark, looked at with Debian's Chromium.

It writes docs/guides/dashboard-map.png and dashboard-traffic.png; with `--out DIR --all` every view, on a laptop and a
phone, light and dark, to be looked at; `--nodes 3` shows a cluster.
"""

from __future__ import annotations

import argparse
import io
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser

GUIDES = Path(__file__).parents[1] / "docs" / "guides"
VIEWS = {"map": "/", "traffic": "/traffic", "retained": "/retained", "ranked": "/ranked", "cluster": "/cluster"}
CHOSEN = (("map", "light"), ("traffic", "dark"))
LAPTOP, PHONE = (1280, 760), (375, 812)
START_S = 240.0


def main() -> int:
    """Start everything, wait until there is something to see, and take the pictures."""
    parser = argparse.ArgumentParser(description="Take the pictures of the dashboard's guide.")
    parser.add_argument("--out", type=Path, default=GUIDES, help="where they go (docs/guides)")
    parser.add_argument("--all", action="store_true", help="every view in every size and theme")
    parser.add_argument("--nodes", type=int, default=1, help="brokers (1)")
    parser.add_argument("--seconds", type=float, default=150.0, help="how long to let it run before (150)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium")
    if chromium is None:
        print("Chromium is not installed: apt-get install chromium", file=sys.stderr)
        return 1
    port = random.randrange(20_000, 30_000)
    ports = ["--port", port, "--websocket-port", port + 10, "--metrics-port", port + 20, "--nats-port", port + 30]
    command = [sys.executable, "-m", "clients.cli", "demo", "--nodes", str(arguments.nodes), *map(str, ports)]
    demo = subprocess.Popen([*command, "--dashboard-port", str(port + 40)])  # noqa: S603 - our own words
    try:
        with sync_playwright() as playwright:
            options = ["--no-sandbox", "--disable-gpu"]
            browser = playwright.chromium.launch(executable_path=chromium, args=options)
            address = f"http://127.0.0.1:{port + 40}"
            _wait(browser, address)
            time.sleep(arguments.seconds)
            if arguments.all:
                for name in VIEWS:
                    for theme in ("light", "dark"):
                        _take(browser, address, name, theme, LAPTOP, arguments.out / f"{name}-laptop-{theme}.png")
                        _take(browser, address, name, theme, PHONE, arguments.out / f"{name}-phone-{theme}.png")
            else:
                for name, theme in CHOSEN:
                    _take(browser, address, name, theme, LAPTOP, arguments.out / f"dashboard-{name}.png")
            browser.close()
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait()
    return 0


def _wait(browser: Browser, address: str) -> None:
    """Wait until the map shows vehicles."""
    page = browser.new_page()
    deadline = time.monotonic() + START_S
    while True:
        try:
            page.goto(address)
            page.wait_for_function("/[1-9][0-9]* vehicles/.test(document.querySelector('canvas')?.ariaLabel)")
            break
        except PlaywrightError:  # nobody listens there yet, or nothing moves
            if time.monotonic() > deadline:
                raise
            time.sleep(1.0)
    page.close()


def _take(browser: Browser, address: str, name: str, theme: str, size: tuple[int, int], path: Path) -> None:
    page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)  # type: ignore[arg-type]
    page.goto(address + VIEWS[name])
    page.wait_for_timeout(6_000)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(256).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size // 1_000} kB", flush=True)
    page.close()


if __name__ == "__main__":
    sys.exit(main())
