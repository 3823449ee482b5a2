"""`LocusClient`: subscribe by place and by numbers, publish at a place and to the best, from any Python program."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Literal, Self

from broker_plugins.grammar import (
    DEFAULT_LIMITS,
    WGS84,
    Area,
    Box,
    Clauses,
    Detect,
    Geo,
    Interval,
    Limits,
    Position,
    SmartFilter,
    Space,
    Where,
    build_filter,
    build_topic,
    parse_filter,
)
from clients.broker import Broker
from clients.errors import ClosedError, PositionError
from clients.inbox import Inbox
from clients.link import Link
from clients.messages import Message, Payload, encode
from clients.position import POSITION_TOPIC, checked_position, has_moved
from clients.routing import choose
from clients.stream import MessageStream
from clients.subscription import Subscription

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping

logger = logging.getLogger("locus.client")


class LocusClient:
    """An MQTT 3.1.1 client that says where and how well in the words of Locus. Threads may share one.

    It connects again by itself after a loss, tells its position again and subscribes again. Callbacks run one after the
    other in a thread of their own, so they may call any method of the client. Nothing waits longer than its timeout.

        with LocusClient("broker.example") as client:
            client.subscribe("vehicles/#", print, area=Near(500))
            client.update_position(126.97, 37.56)
            client.publish("alerts/fire", "Leave the building", at=(126.97, 37.56), top=3, qos=1)

    Args:
        host: The broker's name or address.
        port: Its port.
        client_id: Under which name; the broker chooses one if it is empty.
        clean_session: Whether the broker forgets this client when it leaves. If not, subscribe before `connect`, so
            that what was kept for the client finds its callback.
        username: Who comes, if the broker asks.
        password: The password.
        tls: The TLS context, for example `ssl.create_default_context()`; None for a plain connection.
        transport: `tcp` or `websockets`.
        websocket_path: The path of a WebSocket.
        keepalive_s: After how many seconds of silence each side looks whether the other is still there.
        timeout_s: How long a method waits for the broker if its own `timeout_s` is not given.
        queue_size: How many messages wait for callbacks, and how many publications for their acknowledgement.
        space: The space of all coordinates, that of the broker.
        limits: How large filters may be, as the broker has it.
        place_of: Says where a message is, to tell for which of several subscriptions it is; give one where the broker
            has a rule for places, or None if messages carry their place in `at:` clauses although their payloads
            have coordinates, too. It is called by the network thread.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 1883,
        *,
        client_id: str = "",
        clean_session: bool = True,
        username: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        transport: Literal["tcp", "websockets"] = "tcp",
        websocket_path: str = "/mqtt",
        keepalive_s: int = 60,
        timeout_s: float = 10.0,
        queue_size: int = 10_000,
        space: Space = WGS84,
        limits: Limits = DEFAULT_LIMITS,
        place_of: Callable[[Message], Position | None] | None = lambda message: message.place,
    ) -> None:
        if not clean_session and not client_id:
            raise ValueError("a session that is kept needs a name: give a client_id, or clean_session=True")
        self.space = space
        self.limits = limits
        self._timeout_s = timeout_s
        self._place_of = place_of
        self._position: Position | None = None
        self._position_lock = threading.Lock()
        self._unrouted = 0
        self._calls: Inbox[tuple[Subscription, Callable[[Message], object], Message]] = Inbox(queue_size)
        self._caller = threading.Thread(target=self._call_back, name="locus-callbacks", daemon=True)
        broker = Broker(
            host,
            port,
            client_id,
            clean_session,
            keepalive_s,
            username,
            password,
            tls,
            transport,
            websocket_path,
        )
        self._link = self._make_link(broker, queue_size)

    def _make_link(self, broker: Broker, queue_size: int) -> Link:
        return Link(broker, self._route, self._greet, queue_size)

    @property
    def connected(self) -> bool:
        """Whether there is a connection at the moment."""
        return self._link.up

    @property
    def dropped(self) -> int:
        """How many messages were dropped because callbacks were too slow for them."""
        return self._calls.dropped

    @property
    def unrouted(self) -> int:
        """How many messages came that no subscription of this client is for, such as those of an earlier session."""
        return self._unrouted

    @property
    def position(self) -> Position | None:
        """The position last told to the broker."""
        return self._position

    def connect(self, *, timeout_s: float | None = None) -> Self:
        """Connect. Filters subscribed to before are granted when this returns.

        Raises:
            ConnectError: If the broker cannot be reached or does not let this client in.
            NoAnswerError: If it does not answer in time.
            SubscriptionRefusedError: If it refuses one of the filters.
        """
        self._link.connect(self.deadline_s(timeout_s))
        self._caller.start()
        return self

    def close(self, *, timeout_s: float | None = None) -> None:
        """Leave: what was published is acknowledged, what has arrived is passed to its callbacks, streams end.

        All of it within the time given; what is left then is given up. Closing twice does nothing.
        """
        timeout = self.deadline_s(timeout_s)
        self._link.close(timeout)
        self._calls.close()
        if self._caller.is_alive() and threading.current_thread() is not self._caller:
            self._caller.join(timeout)

    def __enter__(self) -> Self:
        try:
            return self.connect()
        except BaseException:  # an interrupt, too, must not leave threads behind
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.connect)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def subscribe(
        self,
        topic_filter: str,
        on_message: Callable[[Message], object],
        *,
        area: Area | None = None,
        detect: Detect = Detect.INSIDE,
        where: Mapping[str, Interval] | None = None,
        share: str | None = None,
        qos: int = 0,
        timeout_s: float | None = None,
    ) -> Subscription:
        """Subscribe, and have each message passed to a callback.

        Args:
            topic_filter: An ordinary filter such as `vehicles/#`, or a whole smart filter such as
                `$geo/near:500m/vehicles/#`.
            on_message: Called with each message. What it raises is logged.
            area: Only messages there: `Near(500)`, `Box(w, s, e, n)`, `Circle(lon, lat, 500)`, `Cell("wydm9")` or
                `Fence("harbour")`; all lengths in metres.
            detect: Which messages about an object in relation to the area.
            where: Only payloads whose numbers lie in these intervals, by attribute: `{"speed": Interval(low=80)}`.
            share: The group of subscribers among whom each message goes to one.
            qos: The highest QoS wanted.
            timeout_s: How long to wait for the broker.

        Raises:
            GrammarError: If the filter cannot be written; it points at the character.
            SubscriptionRefusedError: If the broker refuses it.
            NoAnswerError: If it does not answer in time.
            NotConnectedError: If there is no connection in that time.
            ClosedError: If the client has been closed.
        """
        text, smart = self._filter(topic_filter, area, detect, where, share)
        subscription: Subscription

        def deliver(message: Message) -> None:
            self._calls.put((subscription, on_message, message))

        subscription = Subscription(self, text, smart, _checked_qos(qos), deliver)
        self._open(subscription, timeout_s)
        return subscription

    def messages(
        self,
        topic_filter: str,
        *,
        area: Area | None = None,
        detect: Detect = Detect.INSIDE,
        where: Mapping[str, Interval] | None = None,
        share: str | None = None,
        qos: int = 0,
        queue_size: int = 1_000,
        timeout_s: float | None = None,
    ) -> MessageStream:
        """Subscribe, and iterate over the messages in asyncio: `async for message in client.messages(…):`.

        Args:
            topic_filter: As for `subscribe`, which see also for `area`, `detect`, `where`, `share` and `qos`.
            area: Only messages there.
            detect: Which messages about an object.
            where: Only payloads with such numbers.
            share: The group of subscribers.
            qos: The highest QoS wanted.
            queue_size: How many messages may wait to be taken; then the oldest is dropped and counted.
            timeout_s: How long to wait for the broker.

        Raises:
            GrammarError: If the filter cannot be written. What `subscribe` raises else comes when the stream begins.
        """
        text, smart = self._filter(topic_filter, area, detect, where, share)
        _checked_qos(qos)

        def begin(deliver: Callable[[Message], None]) -> Subscription:
            subscription = Subscription(self, text, smart, qos, deliver)
            self._open(subscription, timeout_s)
            return subscription

        return MessageStream(begin, queue_size)

    def publish(
        self,
        topic: str,
        payload: Payload = None,
        *,
        at: Position | tuple[float, float] | None = None,
        area: Box | tuple[float, float, float, float] | None = None,
        top: int | None = None,
        ttl_s: float | None = None,
        reply: str | None = None,
        qos: int = 0,
        retain: bool = False,
        wait: bool = True,
        timeout_s: float | None = None,
    ) -> None:
        """Publish a message, and wait until it is sent (QoS 0) or acknowledged (QoS 1 and 2).

        Args:
            topic: The topic its subscribers see.
            payload: Bytes, text, None, or anything that can be written as JSON.
            at: Where it happened, longitude first.
            area: Where it matters: west, south, east, north.
            top: Only to so many of the most accurate matches.
            ttl_s: For how many seconds it is worth having.
            reply: The topic to which the broker sends a receipt of who matched; subscribe to it before.
            qos: The QoS.
            retain: Whether the broker keeps it for later subscribers.
            wait: False does not wait for the acknowledgement of QoS 1 and 2; `close` does.
            timeout_s: How long to wait.

        Raises:
            GrammarError: If what is said cannot be written in the topic.
            QueueFullError: If too many messages wait for their acknowledgement.
            NoAnswerError: If the broker does not acknowledge in time.
            NotConnectedError: If there is no connection in that time.
            ClosedError: If the client has been closed.
        """
        place = Position(*at) if isinstance(at, tuple) else at
        box = Box(*area) if isinstance(area, tuple) else area
        text = build_topic(topic, Clauses(place, box, top, ttl_s, reply), self.space, self.limits)
        self._link.publish(
            text,
            encode(payload),
            qos=_checked_qos(qos),
            retain=retain,
            wait=wait,
            timeout_s=self.deadline_s(timeout_s),
        )

    def update_position(
        self, lon: float, lat: float, *, least_distance_m: float = 0.0, timeout_s: float | None = None
    ) -> bool:
        """Tell the broker where this client is, if that is far enough from where it last said it was.

        Subscriptions with `Near` move along. After a reconnection the last position is told again.

        Args:
            lon: Longitude, or x in a plane.
            lat: Latitude, or y.
            least_distance_m: Only if moved so many metres since the last time told; 0 tells always.
            timeout_s: How long to wait for a connection.

        Returns:
            Whether it was told.

        Raises:
            PositionError: If there is no such position or distance.
            NotConnectedError: If there is no connection in time.
        """
        position = checked_position(self.space, lon, lat)
        timeout = self.deadline_s(timeout_s)
        if not self._position_lock.acquire(timeout=timeout):
            raise PositionError("another position is still being told: update positions one after the other")
        try:
            before = self._position
            if not has_moved(self.space, before, position, least_distance_m):
                return False
            # Set before it is sent, so that a connection made again meanwhile begins with it.
            self._position = position
            try:
                self._link.publish(
                    POSITION_TOPIC, _written(position), qos=0, retain=False, wait=True, timeout_s=timeout
                )
            except BaseException:
                self._position = before
                raise
            return True
        finally:
            self._position_lock.release()

    # What subscriptions ask for.

    def deadline_s(self, timeout_s: float | None) -> float:
        """The seconds to wait, those of the client if not said."""
        return self._timeout_s if timeout_s is None else timeout_s

    def move_subscription(self, subscription: Subscription, text: str, smart: SmartFilter, timeout_s: float) -> None:
        """Subscribe to another filter in place of the one held; `Subscription.move` is how to ask for it."""
        if not subscription.active:
            raise ClosedError(f"the subscription {subscription.filter!r} has ended: subscribe anew")
        if text == subscription.filter:
            return
        self._link.hold(text, smart, subscription, timeout_s)
        left, subscription.filter, subscription.smart = subscription.filter, text, smart
        self._link.leave(left, subscription, timeout_s)

    def cancel_subscription(self, subscription: Subscription, timeout_s: float) -> None:
        """Give a subscription up; `Subscription.cancel` is how to ask for it."""
        if subscription.active:
            subscription.end()
            self._link.leave(subscription.filter, subscription, timeout_s)

    def _filter(
        self,
        topic_filter: str,
        area: Area | None,
        detect: Detect,
        where: Mapping[str, Interval] | None,
        share: str | None,
    ) -> tuple[str, SmartFilter]:
        """The filter to send and what it says. A filter that says everything itself goes as it is written."""
        if area is None and not where and share is None:
            if detect is not Detect.INSIDE:
                raise ValueError(f"detect={detect.value} needs an area: give area=…")
            return topic_filter, parse_filter(topic_filter, self.space, self.limits)
        smart = SmartFilter(
            topic_filter,
            None if area is None else Geo(area, detect),
            Where.of(where) if where else None,
            share,
        )
        return build_filter(smart, self.space, self.limits), smart

    def _open(self, subscription: Subscription, timeout_s: float | None) -> None:
        try:
            self._link.hold(subscription.filter, subscription.smart, subscription, self.deadline_s(timeout_s))
        except BaseException:
            subscription.end()
            raise

    def _greet(self) -> Iterable[tuple[str, bytes]]:
        """What the broker must know before it is subscribed to anything: where this client is."""
        position = self._position
        return () if position is None else ((POSITION_TOPIC, _written(position)),)

    def _route(self, message: Message) -> None:
        """Pass a message on to the subscriptions it is for; in the network thread."""
        chosen = choose(self._link.matching(message.topic), message, self.space, self._place_of)
        if not chosen:
            self._unrouted += 1
        for subscription in dict.fromkeys(holder for held in chosen for holder in held.holders):
            subscription.deliver(message)

    def _call_back(self) -> None:
        while (call := self._calls.take()) is not None:
            subscription, on_message, message = call
            if not subscription.cancelled:
                try:
                    on_message(message)
                except Exception:
                    logger.exception("the callback of %r failed on a message to %r", subscription.filter, message.topic)


def _written(position: Position) -> bytes:
    return encode({"lon": position.lon, "lat": position.lat})


def _checked_qos(qos: int) -> int:
    if qos not in (0, 1, 2):
        raise ValueError(f"QoS {qos!r} does not exist: give 0, 1 or 2")
    return qos
