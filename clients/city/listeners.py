"""Those who listen in the city: roaming subscribers, watchers of fences, workers, and visitors who come and go."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from clients.city import topics
from clients.city.connection import Connection
from clients.city.roaming import RoamingConnection
from clients.position import POSITION_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from clients.city.connection import Publication
    from clients.city.movement import Mover
    from clients.city.plane import Plane
    from clients.city.services import Worker

ALERTS_M: Final = 1_000
"""From how far a roaming subscriber wants to hear alerts."""
STAYS_S: Final = (4.0, 15.0)
AWAY_S: Final = (1.0, 8.0)
WISHES: Final = ("city/sensors/#", "city/sensors/+/temperature", "city/sensors/+/noise", "city/sensors/+/parking")


class _Reported(msgspec.Struct):
    """What is looked at of a message's payload."""

    lon: float | None = None
    lat: float | None = None


class Listener:
    """A subscriber that tells what it received.

    Args:
        host: the broker.
        port: its port.
        client: the client's identifier.
        name: how it is called in `city/subscribers/{name}/…`.
        filters: what it subscribes to.
    """

    def __init__(self, host: str, port: int, client: str, name: str, filters: Sequence[str]) -> None:
        self.name = name
        self.client = client
        self.received = 0
        self._recent: deque[tuple[str, bytes]] = deque(maxlen=topics.RECENT)
        self.connection = self._connect(host, port, filters)

    def _connect(self, host: str, port: int, filters: Sequence[str]) -> Connection | RoamingConnection:
        return Connection(
            host,
            port,
            self.client,
            filters=filters,
            on_message=self._take,
            greeting=self._greeting,
            will=(topics.subscriber_state(self.name), {"online": False}),
        )

    def report(self) -> None:
        """Tell how many messages came, and the latest ones."""
        recent, self._recent = self._recent, deque(maxlen=topics.RECENT)
        said = {"received": self.received, "recent": list(map(_shown, recent))}
        self.connection.publish(topics.subscriber_report(self.name), said)

    def leave(self) -> None:
        """Say that it goes, and go."""
        self.connection.publish(topics.subscriber_state(self.name), {"online": False})
        self.connection.leave()

    def _greeting(self) -> Iterator[Publication]:
        yield topics.subscriber_state(self.name), {"online": True}, False

    def _take(self, topic: str, payload: bytes) -> None:
        self.received += 1
        self._recent.append((topic, payload))


class Roamer(Listener):
    """A subscriber that moves about, and hears of the vehicles around it.

    Args:
        host: the broker.
        port: its port.
        name: of the subscriber.
        mover: how it moves.
        plane: where.
        nodes: the nodes of a cluster, among which it follows the owner of the place it is at; none for a single broker.
        moved: called with the client's identifier and the addresses it moved from and to.
    """

    def __init__(
        self,
        host: str,
        port: int,
        name: str,
        mover: Mover,
        plane: Plane,
        *,
        nodes: Sequence[str] = (),
        moved: Callable[[str, str, str], None] | None = None,
    ) -> None:
        self._mover = mover
        self._plane = plane
        self._nodes = nodes
        self._moved = moved
        self.handovers = 0
        self._place = plane.globe(mover.advance(0.0).point)
        super().__init__(
            host,
            port,
            f"city-subscriber-{name}",
            name,
            [f"$geo/near:{topics.NEAR_M}m/{topics.VEHICLE_POSITIONS}", f"$geo/near:{ALERTS_M}m/{topics.ALERTS}"],
        )

    def _connect(self, host: str, port: int, filters: Sequence[str]) -> Connection | RoamingConnection:
        if not self._nodes:
            return super()._connect(host, port, filters)
        return RoamingConnection(
            host,
            port,
            self.client,
            nodes=self._nodes,
            filters=filters,
            on_message=self._take,
            greeting=self._greeting,
            moved=self._has_moved,
        )

    def _has_moved(self, before: str, after: str) -> None:
        self.handovers += 1
        if self._moved is not None:
            self._moved(self.client, before, after)

    def move(self, elapsed_s: float) -> None:
        """Move on, and tell the broker and everybody else."""
        lon, lat = self._place = self._plane.globe(self._mover.advance(elapsed_s).point)
        self.connection.publish(POSITION_TOPIC, {"lon": lon, "lat": lat})
        shown = {"lon": lon, "lat": lat, "radius_m": topics.NEAR_M}
        self.connection.publish(topics.subscriber_position(self.name), shown)

    def _greeting(self) -> Iterator[Publication]:
        yield from super()._greeting()
        lon, lat = self._place
        yield POSITION_TOPIC, {"lon": lon, "lat": lat}, False


def watcher(host: str, port: int, fence: str) -> Listener:
    """A subscriber that hears who enters and who leaves a fence."""
    wanted = [f"$geo/fence:{fence};detect={what}/{topics.VEHICLE_POSITIONS}" for what in ("enter", "exit")]
    return Listener(host, port, f"city-watcher-{fence}", f"watcher-{fence}", wanted)


def worker(host: str, port: int, wishes: Worker) -> Connection:
    """A client that gets the offers that suit it."""
    client = f"city-worker-{wishes.name[1:]}"
    shown = {"client": client, "filter": wishes.filter}
    return Connection(
        host,
        port,
        client,
        filters=[wishes.filter],
        on_message=_ignore,
        greeting=lambda: [(topics.worker(wishes.name), shown, True)],
    )


class Visitor:
    """Somebody who comes, looks at some sensors, and goes again, over and over.

    Args:
        host: the broker.
        port: its port.
        number: of the visitor.
        seed: decides when it comes and what it looks at.
    """

    def __init__(self, host: str, port: int, number: int, seed: int) -> None:
        self._host, self._port = host, port
        self._name = f"city-visitor-{number}"
        self._rng = random.Random(f"{seed}/visitor-{number}")
        self._turn_s = self._rng.uniform(0.0, STAYS_S[1])
        self._here: Connection | None = None
        self._gone: Connection | None = None
        self.visits = 0

    def act(self, now_s: float) -> None:
        """Come or go, if it is time to."""
        if now_s < self._turn_s:
            return
        if self._here is not None:
            self._here.leave()
            self._gone, self._here = self._here, None
            self._turn_s = now_s + self._rng.uniform(*AWAY_S)
            return
        if self._gone is not None:
            self._gone.close()
        wish = self._rng.choice(WISHES)
        self._here = Connection(self._host, self._port, self._name, filters=[wish], on_message=_ignore)
        self.visits += 1
        self._turn_s = now_s + self._rng.uniform(*STAYS_S)

    def connections(self) -> list[Connection]:
        """Those that are not closed yet."""
        return [connection for connection in (self._here, self._gone) if connection is not None]


def _ignore(_topic: str, _payload: bytes) -> None:
    """Somebody is glad to have it."""


def _shown(arrived: tuple[str, bytes]) -> dict[str, Any]:
    topic, payload = arrived
    try:
        place = msgspec.json.decode(payload, type=_Reported)
    except msgspec.DecodeError:
        place = _Reported()
    return {"topic": topic, "lon": place.lon, "lat": place.lat}
