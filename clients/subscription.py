"""A subscription in the hand of who made it: it can be moved and cancelled."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from broker_plugins.grammar import Area, Detect, Geo, SmartFilter, build_filter
from clients.errors import NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker_plugins.grammar import Limits, Space
    from clients.messages import Message


class Keeper(Protocol):
    """What a subscription asks of the client it belongs to."""

    @property
    def space(self) -> Space:
        """The space of coordinates."""

    @property
    def limits(self) -> Limits:
        """How large a filter may be."""

    def move_subscription(self, subscription: Subscription, text: str, smart: SmartFilter, timeout_s: float) -> None:
        """Subscribe to another filter in place of the one held."""

    def cancel_subscription(self, subscription: Subscription, timeout_s: float) -> None:
        """Give a subscription up."""

    def deadline_s(self, timeout_s: float | None) -> float:
        """The seconds to wait, those of the client if not said."""


class Subscription:
    """A filter this client holds, and who takes its messages. Made by `LocusClient.subscribe`.

    Attributes:
        filter: The filter as it goes over the wire.
        smart: What it says.
        qos: The QoS asked for.
        granted_qos: The QoS the broker granted, None until it has answered.
        error: Why the subscription ended, if the broker refused it when the connection was made again.
    """

    def __init__(
        self, keeper: Keeper, text: str, smart: SmartFilter, qos: int, deliver: Callable[[Message], None] | None
    ) -> None:
        self.filter = text
        self.smart = smart
        self.qos = qos
        self.granted_qos: int | None = None
        self.error: Exception | None = None
        self._active = True
        self._cancelled = False
        self._changes = threading.Lock()
        self._keeper = keeper
        self._deliver = deliver
        self._on_end: Callable[[], None] | None = None

    @property
    def active(self) -> bool:
        """Whether messages still come."""
        return self._active

    @property
    def cancelled(self) -> bool:
        """Whether it was given up; no callback begins after that."""
        return self._cancelled

    def move(self, area: Area, *, detect: Detect | None = None, timeout_s: float | None = None) -> None:
        """Listen in another area from now on.

        The new filter is subscribed to before the old one is left, so nothing is missed in between. If the broker
        refuses the new one, the old one stays.

        Args:
            area: Where to listen.
            detect: What to detect there; as before if not said.
            timeout_s: How long to wait for the broker.

        Raises:
            GrammarError: If the area cannot be written as a filter.
            SubscriptionRefusedError: If the broker refuses it.
            NoAnswerError: If it does not answer in time.
            NotConnectedError: If there is no connection in that time.
            ClosedError: If the subscription has been cancelled.
        """
        before = Detect.INSIDE if self.smart.geo is None else self.smart.geo.detect
        smart = replace(self.smart, geo=Geo(area, detect or before))
        text = build_filter(smart, self._keeper.space, self._keeper.limits)
        timeout = self._keeper.deadline_s(timeout_s)
        with self._changing(timeout):
            self._keeper.move_subscription(self, text, smart, timeout)

    def cancel(self, *, timeout_s: float | None = None) -> None:
        """Want no more messages. Without a connection this takes effect at once, and at the broker when it is back.

        Raises:
            NoAnswerError: If the broker does not answer in time; messages no longer come all the same.
        """
        self._cancelled = True
        timeout = self._keeper.deadline_s(timeout_s)
        with self._changing(timeout):
            self._keeper.cancel_subscription(self, timeout)

    @contextlib.contextmanager
    def _changing(self, timeout_s: float) -> Iterator[None]:
        """One change at a time: a subscription cancelled while it moves must not be left behind where it moved to."""
        if not self._changes.acquire(timeout=timeout_s):
            raise NoAnswerError(f"the subscription {self.filter!r} is still being moved or cancelled: wait for that")
        try:
            yield
        finally:
            self._changes.release()

    def deliver(self, message: Message) -> None:
        """Pass a message on to who takes it, unless the subscription has ended."""
        if self._active and self._deliver is not None:
            self._deliver(message)

    def refused(self, text: str, error: Exception) -> None:
        """The broker refused a filter; one this subscription was to move to does not end it. For the client itself."""
        if text == self.filter:
            self.end(error)

    def end(self, error: Exception | None = None) -> None:
        """No more messages will come, because of an error if there is one. For the client itself."""
        self._active = False
        self.error = self.error or error
        if self._on_end is not None:
            self._on_end()

    def when_ended(self, tell: Callable[[], None]) -> None:
        """Have this called when the subscription ends. For the client itself."""
        self._on_end = tell
        if not self._active:
            tell()

    def __repr__(self) -> str:
        return f"<Subscription {self.filter!r} {'active' if self._active else 'ended'}>"
