"""The connection of a roaming client: it moves to another node when told, and finds another one when its node is gone.

A move is made before the break. While the old connection still brings messages the client connects to the new node;
what that brings waits until the old node has said that it has sent the last one. Messages of the application's wait
too, until the old node has acknowledged what was published there. All moves are made by one thread.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from clients.link import Link
from clients.roaming_tools import (
    HANDOVER_TOPIC,
    NODES_TOPIC,
    Listed,
    Told,
    at,
    is_over,
    join,
    listens,
    share_received,
    stop,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from paho.mqtt import client as mqtt

    from clients.broker import Broker
    from clients.messages import Message

logger = logging.getLogger("locus.client")

_BARRIER = "$locus/handover/barrier"
"""Nobody subscribes to it: to unsubscribe from it is to ask whether everything before was seen."""

_QUIET_S = 5.0
_MOVE_S = 30.0
_END_S = 5.0
_TCP_S = 2.0
_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_REMEMBERED = 1024


class RoamingLink(Link):
    """One connection after the other, to the node that is told.

    Args:
        broker: The first node.
        receive: Gets each message, in a network thread, one after the other.
        greet: Gives what to publish each time a connection is made.
        most_unacknowledged: How many messages may wait for their acknowledgement.
        nodes: Further nodes, as `host:port`, to begin with.
        moved: Called with the address of a node when the client has moved to it, by the thread that moves.
    """

    def __init__(
        self,
        broker: Broker,
        receive: Callable[[Message], None],
        greet: Callable[[], Iterable[tuple[str, bytes]]],
        most_unacknowledged: int,
        nodes: Sequence[str],
        moved: Callable[[str], None],
    ) -> None:
        self._nodes = list(dict.fromkeys([str(broker), *nodes]))
        self._moved = moved
        self.handovers = 0
        self._order = threading.Lock()
        self._next: mqtt.Client | None = None
        self._ending: mqtt.Client | None = None
        """The connection whose messages come before those of the other one."""
        self._ended = threading.Event()
        self._behind: deque[mqtt.MQTTMessage] = deque()
        """What the new connection brought before the old one was at its end."""
        self._last: dict[int, tuple[str, bytes]] = {}
        """The last QoS 1 message with each packet identifier."""
        self._twice: dict[int, tuple[str, bytes]] = {}
        """Those that the old connection brought: the new node sends one again if the old one missed its PUBACK."""
        self._answer: Future[bool] = Future()
        self._lost: mqtt.Client | None = None
        """The connection that was lost last; paho says of one that it is there until it has said that it is lost."""
        self._publishing = 0
        self._infos: list[mqtt.MQTTMessageInfo] = []
        self._stopping = threading.Event()
        self._tasks: queue.SimpleQueue[tuple[mqtt.Client, Told | None] | None] = queue.SimpleQueue()
        self._mover = threading.Thread(target=self._work, name="locus-roaming", daemon=True)
        super().__init__(broker, receive, greet, most_unacknowledged)

    @property
    def address(self) -> str:
        """The node this client is connected to, or was last."""
        return str(self._broker)

    @property
    def nodes(self) -> list[str]:
        """The addresses of the nodes that are known."""
        with self._lock:
            return list(self._nodes)

    def _client(self, broker: Broker) -> mqtt.Client:
        paho = self._listen(broker.client(comes_back=False))
        paho.connect_timeout = _TCP_S
        return paho

    def connect(self, timeout_s: float) -> None:
        """Connect to the first of the nodes that is there."""
        deadline = time.monotonic() + timeout_s
        for address in self.nodes:
            if listens(address, min(_TCP_S, max(0.1, deadline - time.monotonic()))):
                self._broker = at(self._broker, address)
                break
        super().connect(max(0.1, deadline - time.monotonic()))
        self._mover.start()

    def close(self, timeout_s: float) -> None:
        """Leave, and move no more."""
        deadline = time.monotonic() + timeout_s
        self._stopping.set()
        self._tasks.put(None)
        if self._mover.is_alive() and threading.current_thread() is not self._mover:
            self._mover.join(timeout_s)
        super().close(max(0.1, deadline - time.monotonic()))

    @property
    def opened(self) -> bool:
        """Whether `connect` was called."""
        return self._state != "new"

    def forget_session(self, seconds: float) -> None:
        """Let the cluster forget this client: connect once with a clean session, and leave."""
        for address in dict.fromkeys([str(self._broker), *self.nodes]):
            if not listens(address, _TCP_S):
                continue
            broker = replace(at(self._broker, address), clean_session=True)
            paho = broker.client(comes_back=False)
            done = threading.Event()
            paho.on_connect = lambda *_, done=done: done.set()
            try:
                paho.connect(broker.host, broker.port, broker.keepalive_s)
            except OSError:
                continue
            paho.loop_start()
            done.wait(seconds)
            paho.disconnect()
            join(paho)
            return

    # Publishing waits while the client moves.

    def _begin_publishing(self) -> mqtt.Client:
        self._publishing += 1
        return self._paho

    def _published(self, info: mqtt.MQTTMessageInfo) -> None:
        with self._lock:
            self._publishing -= 1
            if len(self._infos) >= 256:
                self._infos = [each for each in self._infos if not is_over(each)]
            self._infos.append(info)

    def _quiet(self, seconds: float) -> bool:
        """Let nobody publish or subscribe, and wait until the node has acknowledged what was sent to it."""
        deadline = time.monotonic() + seconds
        with self._lock:
            if not self._up:
                return False
            self._up = False
        while time.monotonic() < deadline:
            with self._lock:
                waiting = self._publishing or not all(map(is_over, self._infos))
            if not waiting:
                break
            time.sleep(0.002)
        else:
            return False
        with self._lock:
            barrier = self._send_leaving([_BARRIER])
        try:
            barrier.result(max(0.01, deadline - time.monotonic()))
        except FutureTimeoutError:
            return False
        with self._lock:
            self._left_offline.discard(_BARRIER)
            return not self._subscribing

    def _go_on(self) -> None:
        """Stay: publish and subscribe again."""
        with self._connected:
            self._up = self._is_there()
            self._connected.notify_all()

    def _is_there(self) -> bool:
        with self._lock:
            return self._lost is not self._paho and self._paho.is_connected()

    # The thread that moves.

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None and not self._stopping.is_set():
            paho, told = task
            if paho is not self._paho:
                continue  # the client is elsewhere by now
            try:
                if told is None:
                    self._find_node()
                elif told.address != str(self._broker):
                    self._move(told)
            except Exception:  # the client must go on
                logger.exception("could not move to another node")
                self._go_on()
                self._stopping.wait(_PAUSE_S)
                self._tasks.put((self._paho, None))

    def _move(self, told: Told) -> None:
        """Connect to a node before leaving this one."""
        if not self._quiet(_QUIET_S):
            self._go_on()  # the node says it again
            return
        broker = at(self._broker, told.address)
        coming = self._client(broker)
        share_received(self._paho, coming)
        with self._order:
            self._ended.clear()
            self._ending = self._paho
        with self._lock:
            answer: Future[bool] = Future()
            self._answer = answer
            self._next = coming
        began = time.monotonic()
        try:
            coming.connect(broker.host, broker.port, broker.keepalive_s)
            coming.loop_start()
            moved = answer.result(_MOVE_S)
        except (OSError, FutureTimeoutError) as error:
            logger.info("node %s at %s is not to be reached: %s", told.node, told.address, error)
            moved = False
        if not moved:
            self._stay(coming)
            return
        old = self._ending
        if not self._ended.wait(_END_S):
            logger.warning("the old node did not say that it had sent everything")
            self._end(whole=False)
        self._broker = broker
        self.handovers += 1
        if old is not None:
            stop(old)
        logger.info("moved to node %s at %s in %.0f ms", told.node, told.address, (time.monotonic() - began) * 1000)
        self._moved(told.address)

    def _stay(self, coming: mqtt.Client) -> None:
        """The move came to nothing; the old node may have let go all the same."""
        with self._lock:
            self._next = None
        stop(coming)
        self._end(whole=False)
        self._go_on()
        if not self._is_there():
            self._tasks.put((self._paho, None))

    def _find_node(self) -> None:
        """The node is gone: go to another one, or to the same when it is back."""
        pause = _PAUSE_S
        while not self._stopping.is_set() and not self._is_there():
            here = str(self._broker)
            for address in dict.fromkeys([here, *self.nodes]):
                if self._reaches(address):
                    return
            self._stopping.wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _reaches(self, address: str) -> bool:
        """Connect again, with everything that was not acknowledged."""
        if self._stopping.is_set() or not listens(address, _TCP_S):
            return False
        paho = self._paho
        join(paho)
        with self._connected:
            self._refusal = None
            self._last.clear()
            self._twice.clear()
        broker = at(self._broker, address)
        try:
            paho.connect(broker.host, broker.port, broker.keepalive_s)
        except OSError:
            return False
        paho.loop_start()
        with self._connected:
            self._connected.wait_for(lambda: self._up or self._refusal is not None or self._stopping.is_set(), _MOVE_S)
            up = self._up
        if not up:
            paho.disconnect()
            join(paho)
            return False
        if address != str(self._broker):
            self._broker = broker
            self._moved(address)
        return True

    # What paho calls, in the network thread of one connection or the other.

    def _on_connect(self, paho: mqtt.Client, data: Any, flags: mqtt.ConnectFlags, reason: Any, more: Any) -> None:
        with self._lock:
            if paho is self._next:
                self._next = None
                if reason.is_failure:
                    logger.info("the other node refused this client: %s", reason)
                    self._answer.set_result(False)
                    return
                self._paho = paho
                self._lost = None
                self._infos.clear()
                self._subscribing.clear()
                super()._on_connect(paho, data, flags, reason, more)
                self._answer.set_result(True)
                return
            if paho is self._lost and not reason.is_failure:
                self._lost = None
        if paho is self._paho:
            super()._on_connect(paho, data, flags, reason, more)

    def _on_disconnect(self, paho: mqtt.Client, data: Any, flags: Any, reason: Any, more: Any) -> None:
        with self._lock:
            if paho is self._next:
                self._next = None
                self._answer.set_result(False)
                return
            if paho is self._paho:
                self._lost = paho
        if paho is self._ending:
            self._end(whole=False)
        if paho is self._paho:
            super()._on_disconnect(paho, data, flags, reason, more)
            self._tasks.put((paho, None))  # after a move that is under way, if it is still this one then

    def _on_message(self, paho: mqtt.Client, _data: Any, arrived: mqtt.MQTTMessage) -> None:
        if arrived.topic == HANDOVER_TOPIC:
            self._on_told(paho, bytes(arrived.payload))
        elif arrived.topic == NODES_TOPIC:
            self._on_nodes(bytes(arrived.payload))
        else:
            with self._order:
                if self._ending is not None and paho is not self._ending:
                    self._behind.append(arrived)
                else:
                    self._pass_on(paho, arrived)

    def _pass_on(self, paho: mqtt.Client, arrived: mqtt.MQTTMessage) -> None:
        """Hand a message on, unless it is one that the old node had sent; of QoS 2 paho knows itself."""
        if arrived.qos == 1:
            same = (arrived.topic, bytes(arrived.payload))
            if self._twice.pop(arrived.mid, None) == same and arrived.dup:
                return
            self._last.pop(arrived.mid, None)
            self._last[arrived.mid] = same
            if len(self._last) > _REMEMBERED:
                self._last.pop(next(iter(self._last)))
        super()._on_message(paho, None, arrived)

    def _on_told(self, paho: mqtt.Client, payload: bytes) -> None:
        try:
            told = msgspec.json.decode(payload, type=Told)
        except msgspec.MsgspecError as error:
            logger.warning("a node said something on %s that cannot be read: %s", HANDOVER_TOPIC, error)
            return
        if told.end:
            if paho is self._ending:
                self._end(whole=True)
        elif told.address:
            self._tasks.put((paho, told))

    def _on_nodes(self, payload: bytes) -> None:
        try:
            listed = msgspec.json.decode(payload, type=list[Listed])
        except msgspec.MsgspecError as error:
            logger.warning("a node said something on %s that cannot be read: %s", NODES_TOPIC, error)
            return
        with self._lock:
            self._nodes = list(dict.fromkeys([*(each.address for each in listed if each.address), *self._nodes]))[:64]

    def _end(self, *, whole: bool) -> None:
        """The old connection has brought its last message, all of them if it is `whole`: now those of the new one."""
        with self._order:
            if self._ending is None:
                return
            self._ending = None
            self._twice, self._last = (self._last if whole else {}), {}
            while self._behind:
                self._pass_on(self._paho, self._behind.popleft())
            self._ended.set()
