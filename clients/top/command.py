"""`locus top`: a broker's figures in a terminal, live or once."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from clients.errors import LocusClientError
from clients.options import add_connection, client_from, guarded, seconds
from clients.top.figures import FILTERS, Figures

if TYPE_CHECKING:
    import argparse

    from rich.console import RenderableType

    from clients.client import LocusClient
    from clients.messages import Message

RETRY_S: Final = 2.0
QUIET_S: Final = 0.5
"""All that is retained has come when nothing has for so long,"""
ENOUGH_S: Final = 2.0
"""or when this is over: a busy broker is never quiet."""
POLL_S: Final = 0.05
NEEDS_RICH: Final = "locus top needs rich: pip install rich"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `locus top`."""
    parser.add_argument("--once", action="store_true", help="print one picture, and end")
    parser.add_argument("--every", type=seconds, default=1.0, metavar="TIME", help="time between two pictures (1s)")
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Draw until interrupted, or once."""
    if find_spec("rich") is None:
        print(NEEDS_RICH, file=sys.stderr)
        return 1
    return guarded("top", lambda: _once(arguments) if arguments.once else _live(arguments))


class Listening:
    """A broker that is listened to, whether it is there or not.

    Args:
        arguments: which broker.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._client: LocusClient | None = None
        self._lock = threading.Lock()
        self._next_try_s = 0.0
        self.figures = Figures()
        self.heard_s = time.monotonic()
        """When something last came."""
        self.away: str | None = "not connected yet"
        """Why there is no connection; None if there is one."""

    @property
    def name(self) -> str:
        """How to call the broker."""
        port = f":{self._arguments.port}" if self._arguments.port else ""
        return f"{self._arguments.host}{port}"

    def connect(self) -> None:
        """Connect.

        Raises:
            LocusClientError: that was not possible.
        """
        client = client_from(self._arguments)
        for topic_filter in FILTERS:
            client.subscribe(topic_filter, self._take)
        try:
            client.connect()
        except BaseException:
            client.close()
            raise
        self._client, self.away = client, None
        self.heard_s = time.monotonic()

    def look(self) -> None:
        """Note whether the broker is there, and try to connect if that never succeeded."""
        if self._client is not None:
            before, self.away = self.away, None if self._client.connected else "the connection was lost"
            if self.away is not None and before is None:
                with self._lock:
                    self.figures.lost()
        elif time.monotonic() >= self._next_try_s:
            try:
                self.connect()
            except (LocusClientError, OSError) as error:
                self.away = str(error)
                self._next_try_s = time.monotonic() + RETRY_S

    def draw(self) -> RenderableType:
        """The picture of now."""
        from clients.top.picture import picture

        with self._lock:
            return picture(self.figures, self.name, self.away, time.time())

    def close(self) -> None:
        """Leave."""
        if self._client is not None:
            self._client.close()

    def _take(self, message: Message) -> None:
        with self._lock:
            self.heard_s = time.monotonic()
            self.figures.take(message.topic, message.payload, self.heard_s, retained=message.retain)


def _once(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    listening = Listening(arguments)
    try:
        listening.connect()
        enough_s = time.monotonic() + ENOUGH_S
        while time.monotonic() < min(listening.heard_s + QUIET_S, enough_s):
            time.sleep(POLL_S)
        Console().print(listening.draw())
    finally:
        listening.close()
    return 0


def _live(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.live import Live

    logging.getLogger("locus.client").setLevel(logging.ERROR)  # the picture says when the connection is lost
    stop = threading.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
    console = Console()
    listening = Listening(arguments)
    try:
        if not console.is_terminal:  # into a file, one picture after the other
            while not stop.is_set():
                listening.look()
                console.print(listening.draw())
                stop.wait(arguments.every)
            return 0
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not stop.is_set():
                listening.look()
                live.update(listening.draw(), refresh=True)
                stop.wait(arguments.every)
    finally:
        listening.close()
    return 0
