"""An engine with the retained plugin, on a clock that the test moves, and a disk that forgets nothing."""

from __future__ import annotations

import heapq
import itertools
import struct
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from broker_plugins.engine.engine import Engine
from broker_plugins.engine.message import Message
from broker_plugins.engine.options import EngineOptions
from broker_plugins.engine.session import Session
from broker_plugins.engine.store import TABLES
from broker_plugins.retained import RetainedOptions, RetainedPlugin
from broker_plugins.retained.rules import Rule
from rl_policy import Choice, CostModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_plugins.engine.subscription import Subscription

D_MAX_S = 10.0


class Handle:
    """What uvloop gives for a time that has passed already: a handle that does not say when."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call, self.cancelled = call, False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """As much of an event loop as the engine and the plugin use."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self._soon: deque[Handle] = deque()
        self._later: list[tuple[float, int, Handle]] = []
        self._count = itertools.count()

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> Handle:
        handle = Handle(lambda: call(*arguments))
        self._soon.append(handle)
        return handle

    def call_at(self, when: float, call: Callable[..., object], *arguments: Any) -> Handle:
        handle = Handle(lambda: call(*arguments))
        heapq.heappush(self._later, (when, next(self._count), handle))
        return handle

    def call_later(self, delay: float, call: Callable[..., object], *arguments: Any) -> Handle:
        return self.call_at(self.now + delay, call, *arguments)

    def spin(self) -> None:
        """Do what is to be done now."""
        while True:
            while self._later and self._later[0][0] <= self.now:
                self._soon.append(heapq.heappop(self._later)[2])
            if not self._soon:
                return
            handle = self._soon.popleft()
            if not handle.cancelled:
                handle.call()

    def advance(self, seconds: float) -> None:
        """Let time pass, from one event to the next."""
        end = self.now + seconds
        self.spin()
        while self._later and self._later[0][0] <= end:
            self.now = max(self.now, self._later[0][0])
            self.spin()
        self.now = end


class Disk:
    """A store that is safe at once."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = {name: {} for name in TABLES}
        self.marks = 0
        self.busy = False
        self.next_message_id = 1
        self.path = "disk"

    def put(self, table: str, key: tuple[Any, ...], row: tuple[Any, ...]) -> None:
        self.tables[table][key] = row

    def delete(self, table: str, key: tuple[Any, ...]) -> None:
        self.tables[table].pop(key, None)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return [key + row for key, row in sorted(self.tables[table].items(), key=lambda item: item[0])]

    def when_safe(self, call: Callable[..., None], *arguments: Any) -> None:
        call(*arguments)


class Got:
    """A message as a client saw it."""

    def __init__(self, topic: str, payload: bytes, qos: int, retain: bool, dup: bool) -> None:
        self.topic, self.payload, self.qos, self.retain, self.dup = topic, payload, qos, retain, dup

    def __repr__(self) -> str:
        return f"{self.topic}={self.payload.decode()}{' retained' if self.retain else ''}{' dup' if self.dup else ''}"


class Line:
    """A connection without a socket: what is sent is parsed and kept, and acknowledged when asked to."""

    listener = "default"
    closed = False
    writable = True

    def __init__(self) -> None:
        self.out: list[bytes] = []
        self.unacknowledged: deque[int] = deque()

    def touch(self) -> None:
        pass

    def flush(self) -> None:
        pass

    def send(self, packet: bytes) -> None:
        pass

    def take(self) -> list[Got]:
        """What has come since the last time."""
        data = b"".join(self.out)
        self.out.clear()
        found = []
        at = 0
        while at < len(data):
            first, length, shift = data[at], 0, 0
            at += 1
            while True:
                length |= (data[at] & 127) << shift
                shift += 7
                at += 1
                if data[at - 1] < 128:
                    break
            body, at = data[at : at + length], at + length
            (size,) = struct.unpack_from("!H", body)
            qos, rest = first >> 1 & 3, body[2 + size :]
            if qos:
                self.unacknowledged.append(struct.unpack_from("!H", rest)[0])
                rest = rest[2:]
            found.append(Got(body[2 : 2 + size].decode(), rest, qos, bool(first & 1), bool(first & 8)))
        return found


class Scripted:
    """A policy that waits as long as it is told."""

    name = version = "scripted"

    def __init__(self, wait_s: float) -> None:
        self.wait_s = wait_s

    def choose(self, features: object, cost: CostModel) -> Choice:
        return Choice(min(self.wait_s, cost.d_max_s), "as told")


class Desk:
    """The broker: `restart` gives it a new process on the same disk."""

    def __init__(self, engine: EngineOptions | None = None, options: RetainedOptions | None = None) -> None:
        self.clock = Clock()
        self.disk = Disk()
        self.policy = Scripted(D_MAX_S)
        self._engine_options = engine or EngineOptions()
        self._options = options or RetainedOptions()
        self._begin()

    def _begin(self) -> None:
        self.engine = Engine(self.clock, self._engine_options, self.disk)  # type: ignore[arg-type]
        self.plugin = RetainedPlugin(SimpleNamespace(config=self._options))
        self.plugin.rules = (Rule("d/#", CostModel(0.2, D_MAX_S), self.policy),)
        self.engine.start([self.plugin])
        self.lines: dict[str, Line] = {}
        self.clock.spin()

    def restart(self) -> None:
        """The process dies, and another one finds what it left."""
        self.clock = Clock(self.clock.now)
        self._begin()

    def connect(self, client: str, clean: bool = True) -> Line:
        session = self.engine.sessions.get(client)
        if session is not None and clean:
            self.engine.end_session(session)
            session = None
        present = session is not None
        if session is None:
            session = self.engine.sessions[client] = Session(self.engine, client, clean)
            if not clean:
                self.disk.put("sessions", (client,), (0.0,))
        line = self.lines[client] = Line()
        session.attach(line)  # type: ignore[arg-type]
        for hook in self.engine.hooks.connected:
            hook(session)
        if present:
            session.resend()
        self.clock.spin()
        return line

    def disconnect(self, client: str) -> None:
        line = self.lines.pop(client)
        line.will = None  # type: ignore[attr-defined]
        self.engine.disconnected(line, self.engine.sessions[client], "")  # type: ignore[arg-type]
        self.clock.spin()

    def subscribe(self, client: str, text: str, qos: int = 1) -> Subscription:
        session = self.engine.sessions[client]
        for _ in self.engine.subscribe_alone(session, [(text, qos)], bytearray()):
            pass
        self.clock.spin()
        return session.subscriptions[text]

    def unsubscribe(self, client: str, text: str) -> None:
        for _ in self.engine.unsubscribe(self.engine.sessions[client], [text]):
            pass

    def publish(self, topic: str, payload: bytes, *, retain: bool = False, qos: int = 1) -> None:
        self.engine.publish(Message(topic, payload, qos, retain))
        self.clock.spin()

    def acknowledge(self, client: str) -> None:
        """The client acknowledges all it has taken, in order."""
        line = self.lines[client]
        while line.unacknowledged:
            self.engine.sessions[client].acknowledged(line.unacknowledged.popleft())
        self.clock.spin()

    def got(self, client: str) -> list[Got]:
        """What a client has got since the last time, all of it acknowledged."""
        found: list[Got] = []
        while new := self.lines[client].take():
            found += new
            self.acknowledge(client)
        return found
