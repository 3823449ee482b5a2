"""`locus sub`: subscribe to ordinary and smart filters, and print what comes."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import signal
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from clients.options import add_connection, client_from, guarded, seconds

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from clients.messages import Message
    from clients.subscription import Subscription

INTERRUPT_S = 0.2
"""How soon an interrupt is seen."""
TIMED_OUT = 27
"""The exit code when -W is over before -C is reached, as mosquitto_sub has it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `locus sub`."""
    parser.add_argument("filters", nargs="+", metavar="FILTER", help="such as '$geo/circle:126.97,37.56,500m/cars/#'")
    parser.add_argument("-q", "--qos", type=int, choices=(0, 1, 2), default=0, help="highest QoS wanted (0)")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the topic before the payload")
    parser.add_argument("-C", "--count", type=int, metavar="N", help="end after so many messages")
    parser.add_argument("-W", "--wait", type=seconds, metavar="TIME", help="end after so long: 250ms, 10s, 2m")
    parser.add_argument("--json", action="store_true", help="print one JSON object a message")
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print messages until the count or the time is reached, or the user has enough."""
    return guarded("sub", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    if arguments.count is not None and arguments.count < 1:
        raise ValueError(f"-C {arguments.count} would print nothing: give at least 1")
    printing = _Printing(arguments)
    client = client_from(arguments)
    for topic_filter in arguments.filters:
        # Before connecting, so that nothing retained is missed and all are granted when `connect` returns.
        subscription = client.subscribe(topic_filter, printing.show, qos=arguments.qos)
        subscription.when_ended(partial(printing.ended, subscription))
    with _interrupts() as interrupts, client:
        deadline = math.inf if arguments.wait is None else time.monotonic() + arguments.wait
        enough = False
        while not enough and not interrupts and time.monotonic() < deadline:
            enough = printing.over.wait(min(INTERRUPT_S, deadline - time.monotonic()))
    if printing.failure is not None:
        raise printing.failure
    if interrupts:
        raise KeyboardInterrupt
    return 0 if enough or arguments.count is None else TIMED_OUT


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Note an interrupt instead of raising it wherever the program happens to be; a second one is raised."""
    noted: list[int] = []

    def note(number: int, _: object) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


class _Printing:
    """Prints messages, up to a count."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._left: int | None = arguments.count
        self._verbose: bool = arguments.verbose
        self._json: bool = arguments.json
        self._last: Message | None = None
        self.over = threading.Event()
        self.failure: Exception | None = None

    def show(self, message: Message) -> None:
        """Print one message; the callback of every filter."""
        if self.over.is_set() or message is self._last:  # a delivery for several of the filters is shown once
            return
        self._last = message
        try:
            sys.stdout.buffer.write(self._line(message))
            sys.stdout.buffer.flush()
        except OSError as error:  # nobody reads any more
            self.failure = error
            self.over.set()
            return
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self.over.set()

    def ended(self, subscription: Subscription) -> None:
        """A filter was refused after all, when the connection was made again."""
        if subscription.error is not None:
            self.failure = subscription.error
            self.over.set()

    def _line(self, message: Message) -> bytes:
        if self._json:
            return json.dumps(_described(message), ensure_ascii=False).encode() + b"\n"
        head = message.topic.encode() + b" " if self._verbose else b""
        return head + message.payload + b"\n"


def _described(message: Message) -> dict[str, object]:
    """The message as a JSON object; a payload that is not UTF-8 is given in base64."""
    described: dict[str, object] = {"topic": message.topic, "qos": message.qos, "retain": message.retain}
    try:
        described["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        described["payload_base64"] = base64.b64encode(message.payload).decode()
    return described
