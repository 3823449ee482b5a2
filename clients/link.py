"""The connection to a broker: what is subscribed to on it, kept through losses, and waited for with a bound.

Paho calls from its network thread. That thread never waits here and never runs code of the application's, so every
method that waits can be called from any other thread, and each has a deadline.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from paho.mqtt import client as mqtt

from clients.errors import (
    ClosedError,
    ConnectError,
    LocusClientError,
    NoAnswerError,
    NotConnectedError,
    QueueFullError,
    SubscriptionRefusedError,
)
from clients.messages import Message
from clients.routing import topic_matches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker_plugins.grammar import SmartFilter
    from clients.broker import Broker
    from clients.subscription import Subscription

logger = logging.getLogger("locus.client")

_FILTERS_IN_A_PACKET = 200


@dataclass(slots=True, eq=False)
class Held:
    """A filter on the wire and the subscriptions that share it."""

    text: str
    smart: SmartFilter
    qos: int
    holders: list[Subscription] = field(default_factory=list)
    granted: int | None = None
    waiting: list[Future[int]] = field(default_factory=list)


class Link:
    """One connection, made again whenever it is lost.

    Args:
        broker: Which broker.
        receive: Gets each message, in the network thread.
        greet: Gives what to publish each time the connection is made, before anything is subscribed to.
        most_unacknowledged: How many messages may wait for their acknowledgement.
    """

    def __init__(
        self,
        broker: Broker,
        receive: Callable[[Message], None],
        greet: Callable[[], Iterable[tuple[str, bytes]]],
        most_unacknowledged: int,
    ) -> None:
        self._broker = broker
        self._receive = receive
        self._greet = greet
        self._lock = threading.RLock()
        self._connected = threading.Condition(self._lock)
        self._up = False
        self._state: Literal["new", "open", "closed"] = "new"
        self._refusal: str | None = None
        self._held: dict[str, Held] = {}
        self._by_inner: dict[str, list[Held]] = {}
        self._subscribing: dict[int, list[Held]] = {}
        self._leaving: dict[int, Future[None]] = {}
        self._left_offline: set[str] = set()
        self._unwaited: list[mqtt.MQTTMessageInfo] = []
        self._most_unacknowledged = most_unacknowledged
        self._paho = self._client(broker)

    def _client(self, broker: Broker) -> mqtt.Client:
        """A client of paho's that calls this link."""
        return self._listen(broker.client())

    def _listen(self, paho: mqtt.Client) -> mqtt.Client:
        paho.max_queued_messages_set(self._most_unacknowledged)
        paho.on_connect = self._on_connect
        paho.on_disconnect = self._on_disconnect
        paho.on_message = self._on_message
        paho.on_subscribe = self._on_subscribe
        paho.on_unsubscribe = self._on_unsubscribe
        return paho

    @property
    def up(self) -> bool:
        """Whether there is a connection at the moment."""
        return self._up

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._state == "closed"

    def connect(self, timeout_s: float) -> None:
        """Connect, and see all filters held so far granted."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            if self._state != "new":
                raise ClosedError(f"this client was connected to {self._broker} before: make another one")
            self._state = "open"
            waiting = [(held, self._waiter(held)) for held in self._held.values()]
        try:
            self._paho.connect_timeout = max(0.1, timeout_s)
            try:
                self._paho.connect(self._broker.host, self._broker.port, self._broker.keepalive_s)
            except OSError as error:
                raise ConnectError(f"cannot reach a broker at {self._broker}: {_why_not_reached(error)}") from error
            self._paho.loop_start()
            with self._connected:
                self._connected.wait_for(lambda: self._up or self._refusal is not None, deadline - time.monotonic())
                if self._refusal is not None:
                    raise ConnectError(
                        f"the broker at {self._broker} refused this client: {self._refusal}; "
                        "check user name, password and client identifier"
                    )
                if not self._up:
                    raise NoAnswerError(
                        f"{self._broker} took the connection but did not answer CONNECT in {timeout_s:g} s: "
                        "is it an MQTT broker, and does it expect TLS or WebSockets there?"
                    )
            for held, answer in waiting:
                self._granted(held, answer, deadline)
        except LocusClientError:
            self.close(timeout_s)
            raise

    def close(self, timeout_s: float) -> None:
        """Leave: wait for acknowledgements, disconnect, and end the network thread, all within the time given."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            was, self._state = self._state, "closed"
            unwaited = list(self._unwaited) if self._up else []
            self._connected.notify_all()
        if was != "open":
            return
        for info in unwaited:
            _acknowledged(info, deadline)
        self._paho.disconnect()
        # Paho waits for its thread without a bound, and that may hang in a write or in a connect.
        stopping = threading.Thread(target=self._paho.loop_stop, name="locus-closing", daemon=True)
        stopping.start()
        stopping.join(max(1.0, deadline - time.monotonic()))
        self._fail_all(ClosedError(f"the client of {self._broker} has been closed"))
        # Paho closes the pair of sockets that wakes its thread only when it is deleted; what takes its place is inert.
        self._paho = self._broker.client()

    def hold(self, text: str, smart: SmartFilter, holder: Subscription, timeout_s: float) -> None:
        """Subscribe for a holder; before `connect` it is only noted down."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            if self._state != "new":
                self._wait_until_up(deadline, f"subscribe to {text!r}")
            held = self._held.get(text)
            if held is None:
                held = self._held[text] = Held(text, smart, holder.qos)
                self._by_inner.setdefault(smart.inner, []).append(held)
            held.qos = max(held.qos, holder.qos)
            held.holders.append(holder)
            self._left_offline.discard(text)
            if self._state == "new":
                return
            answer = self._waiter(held)
            self._send_subscriptions([held])
        try:
            holder.granted_qos = self._granted(held, answer, deadline)
        except LocusClientError:
            self._let_go(text, holder)
            raise

    def leave(self, text: str, holder: Subscription, timeout_s: float) -> None:
        """Give up a filter for a holder; UNSUBSCRIBE if it was the last one."""
        answer = self._let_go(text, holder)
        if answer is None:
            return
        try:
            answer.result(timeout_s)
        except FutureTimeoutError:
            raise NoAnswerError(
                f"{self._broker} did not confirm within {timeout_s:g} s that {text!r} is left; is it overloaded?"
            ) from None

    def matching(self, topic: str) -> list[Held]:
        """The filters held whose ordinary part matches a topic."""
        with self._lock:
            return [held for inner, group in self._by_inner.items() if topic_matches(inner, topic) for held in group]

    def holders(self) -> list[Subscription]:
        """Everybody who holds a filter."""
        with self._lock:
            return list(dict.fromkeys(holder for held in self._held.values() for holder in held.holders))

    def publish(self, topic: str, payload: bytes, *, qos: int, retain: bool, wait: bool, timeout_s: float) -> None:
        """Send a message, and wait until it is sent (QoS 0) or acknowledged."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            if self._state == "new":
                raise NotConnectedError(f"cannot publish to {topic!r}: call connect() first, or use `with`")
            self._wait_until_up(deadline, f"publish to {topic!r}")
            paho = self._begin_publishing()
        # Without our lock: paho holds one of its own here while it may be calling us.
        info = paho.publish(topic, payload, qos, retain)
        self._published(info)
        if info.rc == mqtt.MQTT_ERR_QUEUE_SIZE:
            raise QueueFullError(
                f"cannot publish to {topic!r}: too many messages are unacknowledged; wait for some, or allow more"
            )
        if info.rc == mqtt.MQTT_ERR_NO_CONN:
            if not qos:
                raise NotConnectedError(f"the connection was lost before the message to {topic!r} was sent: use QoS 1")
            info.rc = mqtt.MQTT_ERR_SUCCESS  # paho keeps it and sends it when the connection is back
        if qos and not wait:
            with self._lock:
                if len(self._unwaited) >= self._most_unacknowledged:
                    self._unwaited = [earlier for earlier in self._unwaited if not earlier.is_published()]
                self._unwaited.append(info)
            return
        if not _acknowledged(info, deadline):
            what = "acknowledge" if qos else "take"
            raise NoAnswerError(f"{self._broker} did not {what} the message to {topic!r} within {timeout_s:g} s")
        if info.rc == mqtt.MQTT_ERR_CONN_LOST:
            raise NotConnectedError(f"the connection was lost before the message to {topic!r} was sent: use QoS 1")

    def _begin_publishing(self) -> mqtt.Client:
        """The client to publish by; the lock is held."""
        return self._paho

    def _published(self, info: mqtt.MQTTMessageInfo) -> None:
        """Paho has a message."""

    def _wait_until_up(self, deadline: float, what: str) -> None:
        """Return once there is a connection; the lock is held."""
        self._connected.wait_for(lambda: self._up or self._state == "closed", max(0.0, deadline - time.monotonic()))
        if self._state == "closed":
            raise ClosedError(f"cannot {what}: the client has been closed")
        if not self._up:
            why = f" ({self._refusal})" if self._refusal else ""
            raise NotConnectedError(f"cannot {what}: no connection to {self._broker}{why}; it is tried again and again")

    def _waiter(self, held: Held) -> Future[int]:
        answer: Future[int] = Future()
        held.waiting.append(answer)
        return answer

    def _granted(self, held: Held, answer: Future[int], deadline: float) -> int:
        """The QoS granted, waited for."""
        try:
            return answer.result(max(0.0, deadline - time.monotonic()))
        except FutureTimeoutError:
            raise NoAnswerError(
                f"{self._broker} did not answer the subscription {held.text!r} in time; is it overloaded?"
            ) from None

    def _let_go(self, text: str, holder: Subscription) -> Future[None] | None:
        """Drop a holder of a filter; what tells that the broker knows, if it has to know and can be told."""
        with self._lock:
            held = self._held.get(text)
            if held is None or holder not in held.holders:
                return None
            held.holders.remove(holder)
            if held.holders:
                return None
            self._drop(held)
            if not self._up:
                self._left_offline.add(text)
                return None
            return self._send_leaving([text])

    def _drop(self, held: Held) -> None:
        del self._held[held.text]
        group = self._by_inner[held.smart.inner]
        group.remove(held)
        if not group:
            del self._by_inner[held.smart.inner]

    def _send_subscriptions(self, wanted: list[Held]) -> None:
        """Send SUBSCRIBE; the lock is held, so that no answer is looked at before its packet is known."""
        for start in range(0, len(wanted), _FILTERS_IN_A_PACKET):
            batch = wanted[start : start + _FILTERS_IN_A_PACKET]
            code, packet_id = self._paho.subscribe([(held.text, held.qos) for held in batch])
            if code == mqtt.MQTT_ERR_SUCCESS and packet_id is not None:
                self._subscribing[packet_id] = batch
            # Otherwise the connection was just lost, and they are sent when it is back.

    def _send_leaving(self, texts: list[str]) -> Future[None]:
        answer: Future[None] = Future()
        code, packet_id = self._paho.unsubscribe(texts)
        if code == mqtt.MQTT_ERR_SUCCESS and packet_id is not None:
            self._leaving[packet_id] = answer
        else:
            self._left_offline.update(texts)
            answer.set_result(None)
        return answer

    def _fail_all(self, error: LocusClientError) -> None:
        with self._lock:
            ended = self.holders()
            waiting = [answer for held in self._held.values() for answer in held.waiting]
            leaving = list(self._leaving.values())
            for held in self._held.values():
                held.waiting.clear()
            self._held.clear()
            self._by_inner.clear()
            self._leaving.clear()
        for answer in waiting:
            answer.set_exception(error)
        for left in leaving:
            left.set_result(None)
        for holder in ended:
            holder.end()

    # What paho calls, in its network thread.

    def _on_connect(self, _paho: mqtt.Client, _data: Any, flags: mqtt.ConnectFlags, reason: Any, _more: Any) -> None:
        with self._connected:
            if reason.is_failure:
                self._refusal = str(reason)
                logger.warning("%s refused the connection: %s", self._broker, reason)
                self._connected.notify_all()
                return
            self._refusal = None
            for topic, payload in self._greet():
                self._paho.publish(topic, payload)
            if flags.session_present and self._left_offline:
                self._send_leaving(sorted(self._left_offline))
            self._left_offline.clear()
            if not flags.session_present:
                for held in self._held.values():
                    held.granted = None
            self._send_subscriptions([held for held in self._held.values() if held.granted is None])
            self._up = True
            self._connected.notify_all()

    def _on_disconnect(self, _paho: mqtt.Client, _data: Any, _flags: Any, reason: Any, _more: Any) -> None:
        with self._lock:
            was_up, self._up = self._up, False
            self._subscribing.clear()
            leaving = list(self._leaving.values())
            self._leaving.clear()
        for answer in leaving:
            answer.set_result(None)
        if was_up and self._state == "open":
            logger.warning("lost the connection to %s (%s); connecting again", self._broker, reason)

    def _on_message(self, _paho: mqtt.Client, _data: Any, arrived: mqtt.MQTTMessage) -> None:
        try:
            message = Message(arrived.topic, bytes(arrived.payload), arrived.qos, arrived.retain)
        except UnicodeDecodeError:  # no broker may send this [MQTT-1.5.3-1]; the connection is not lost for it
            logger.warning("ignored a message whose topic is not UTF-8")
            return
        try:
            self._receive(message)
        except Exception:  # paho would end its thread, and with it the connection
            logger.exception("could not pass on a message to %r", message.topic)

    def _on_subscribe(self, _paho: mqtt.Client, _data: Any, packet_id: int, reasons: list[Any], _more: Any) -> None:
        refused: list[tuple[Held, list[Future[int]], SubscriptionRefusedError]] = []
        granted: list[tuple[Future[int], int]] = []
        with self._lock:
            for held, reason in zip(self._subscribing.pop(packet_id, ()), reasons, strict=False):
                if reason.is_failure:
                    refused.append((held, held.waiting, SubscriptionRefusedError(held.text, held.smart.inner)))
                    held.waiting = []
                    if self._held.get(held.text) is held:
                        self._drop(held)
                    continue
                held.granted = int(reason.value)
                for holder in held.holders:
                    holder.granted_qos = held.granted
                granted += [(answer, held.granted) for answer in held.waiting]
                held.waiting.clear()
        for answer, qos in granted:
            answer.set_result(qos)
        for held, waiting, error in refused:
            if not waiting:
                logger.warning("%s", error)  # nobody is waiting for it: the connection was made again
            for answer in waiting:
                answer.set_exception(error)
            for holder in held.holders:
                holder.refused(held.text, error)

    def _on_unsubscribe(self, _paho: mqtt.Client, _data: Any, packet_id: int, _reasons: Any, _more: Any) -> None:
        with self._lock:
            answer = self._leaving.pop(packet_id, None)
        if answer is not None:
            answer.set_result(None)


def _why_not_reached(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        trusted = "say whom to trust (cafile), and call the broker as its certificate does"
        return f"its certificate is not trusted: {error.verify_message}; {trusted}"
    if isinstance(error, ssl.SSLError):
        return f"{reason}; is it TLS that it expects on this port?"
    if isinstance(error, socket.gaierror):
        return f"{reason}; is that its name?"
    return f"{reason}; does one listen there? (`locus broker` starts one on port 1883)"


def _acknowledged(info: mqtt.MQTTMessageInfo, deadline: float) -> bool:
    """Wait until a message is sent or acknowledged; whether it was in time."""
    # Paho raises what `rc` says as well; the caller looks at that.
    with contextlib.suppress(RuntimeError):
        info.wait_for_publish(max(0.001, deadline - time.monotonic()))
        return info.is_published()
    return info.rc == mqtt.MQTT_ERR_CONN_LOST
