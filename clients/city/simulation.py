"""The city on a broker: moves the town in real time, and lets everybody in it publish and subscribe."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from clients.city import topics
from clients.city.connection import Connection
from clients.city.listeners import Roamer, Visitor, watcher, worker
from clients.city.services import Offer

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence

    from clients.city.connection import Publication
    from clients.city.movement import Mover
    from clients.city.roaming import RoamingConnection
    from clients.city.town import Town

TURNS_A_SECOND: Final = 10
"""Everybody reports once a second, a tenth of them at a time, so that there are no waves."""
LONGEST_STEP_S: Final = 2.0
"""After a pause of the whole process nobody jumps further than this."""
FLEETS: Final = 3
"""Connections that carry the vehicles."""
VISITORS: Final = 6
PROGRESS_S: Final = 10.0


class Simulation:
    """A town whose inhabitants are clients of a broker, or of the nodes of a cluster.

    Args:
        town: who is there and how they move.
        brokers: host and port of each node; clients are spread over them.
        say: told a line now and then.
    """

    def __init__(self, town: Town, brokers: Sequence[tuple[str, int]], say: Callable[[str], None]) -> None:
        if not brokers:
            raise ValueError("a city needs a broker")
        self._town = town
        self._say = say
        self._brokers = brokers
        self._given = 0
        self._map = town.map()
        self._council = Connection(*self._broker(), "city-council", greeting=self._greeting)
        self._fleets = [Connection(*self._broker(), f"city-fleet-{number}") for number in range(1, FLEETS + 1)]
        self._crowd = Connection(*self._broker(), "city-people")
        nodes = [f"{host}:{port}" for host, port in brokers] if len(brokers) > 1 else []
        self._roamers = [
            Roamer(*self._broker(), name, mover, town.plane, nodes=nodes, moved=self._handed_over)
            for name, mover in town.subscribers.items()
        ]
        self._watchers = [watcher(*self._broker(), fence.name) for fence in town.fences]
        self._workers = [worker(*self._broker(), each) for each in town.workers]
        self._visitors = [Visitor(*self._broker(), number, town.seed) for number in range(1, VISITORS + 1)]
        self._vehicles: list[tuple[Connection, str, Mover]] = [
            (self._fleets[number % FLEETS], topics.vehicle(name), mover)
            for number, (name, mover) in enumerate(town.vehicles.items())
        ]
        self._people = [(self._crowd, topics.person(name), mover) for name, mover in town.people.items()]
        self._moved_s: dict[int, float] = {}
        self._offers = self._alerts = self._readings = 0
        self._said_away = False

    def run(self, stop: threading.Event) -> None:
        """Live in real time until told to stop."""
        begin = time.monotonic()
        turn = 0
        next_progress_s = PROGRESS_S
        positions = 0
        while not stop.wait(max(begin + turn / TURNS_A_SECOND - time.monotonic(), 0.0)):
            now_s = time.monotonic() - begin
            self.turn(turn, now_s)
            turn = max(turn + 1, int((now_s - 1.0) * TURNS_A_SECOND))  # turns that were slept through are let go
            if now_s >= next_progress_s:
                published = sum(fleet.published for fleet in (*self._fleets, self._crowd))
                self._say(self.progress((published - positions) / PROGRESS_S))
                positions = published
                next_progress_s += PROGRESS_S

    def turn(self, number: int, now_s: float) -> None:
        """Do what is due in one turn, a time in seconds after the beginning."""
        share = number % TURNS_A_SECOND
        elapsed_s = min(now_s - self._moved_s.get(share, now_s - 1.0), LONGEST_STEP_S)
        self._moved_s[share] = now_s
        for connection, topic, mover in self._vehicles[share::TURNS_A_SECOND]:
            self._move(connection, topic, mover, elapsed_s)
        for connection, topic, mover in self._people[share::TURNS_A_SECOND]:
            self._move(connection, topic, mover, elapsed_s)
        for roamer in self._roamers[share::TURNS_A_SECOND]:
            roamer.move(elapsed_s)
            roamer.report()
        for listener in self._watchers[share::TURNS_A_SECOND]:
            listener.report()
        for visitor in self._visitors:
            visitor.act(now_s)
        self._serve(now_s)
        self._look_for_broker()

    def progress(self, positions_per_s: float) -> str:
        """One line on how it goes."""
        listeners = [*self._roamers, *self._watchers]
        connections = self._connections()
        refused = sorted({text for connection in connections for text in connection.refused})
        skipped = sum(connection.skipped for connection in connections)
        visits = sum(each.visits for each in self._visitors)
        said = (
            f"{positions_per_s:,.0f} positions/s; {sum(each.received for each in listeners):,} heard by "
            f"{sum(each.connection.up for each in listeners)} of {len(listeners)} listeners; {self._offers:,} offers, "
            f"{self._readings:,} readings, {self._alerts:,} alerts, {visits:,} visits"
        )
        handovers = sum(each.handovers for each in self._roamers)
        if handovers:
            said += f", {handovers:,} handovers"
        if skipped:
            said += f"; {skipped:,} skipped because the broker does not keep up"
        if refused:
            said += f"; refused by the broker: {', '.join(refused[:3])}"
        return said

    def close(self) -> None:
        """Everybody says goodbye."""
        for listener in (*self._roamers, *self._watchers):
            listener.leave()
        connections = self._connections()
        for connection in connections:
            connection.leave()
        for connection in connections:
            connection.close()

    def _broker(self) -> tuple[str, int]:
        self._given += 1
        return self._brokers[self._given % len(self._brokers)]

    def _handed_over(self, client: str, before: str, after: str) -> None:
        self._council.publish(topics.HANDOVERS, {"client": client, "from": before, "to": after})

    def _connections(self) -> list[Connection | RoamingConnection]:
        listeners = [each.connection for each in (*self._roamers, *self._watchers)]
        visiting = [connection for visitor in self._visitors for connection in visitor.connections()]
        return [self._council, *self._fleets, self._crowd, *listeners, *self._workers, *visiting]

    def _greeting(self) -> Iterator[Publication]:
        yield topics.MAP, self._map, True
        for fence in self._town.fences:
            ring = [self._town.plane.globe(point) for point in (*fence.ring, fence.ring[0])]
            yield topics.fence(fence.name), {"type": "Polygon", "coordinates": [ring]}, True

    def _move(self, connection: Connection, topic: str, mover: Mover, elapsed_s: float) -> None:
        position = mover.advance(elapsed_s)
        lon, lat = self._town.plane.globe(position.point)
        said = {"lon": lon, "lat": lat, "speed": round(position.speed_mps, 1), "heading": round(position.heading)}
        connection.publish(topic, said)

    def _serve(self, now_s: float) -> None:
        for reading in self._town.sensors.until(now_s):
            lon, lat = self._town.plane.globe(reading.place)
            said: dict[str, Any] = {"value": reading.value, "unit": reading.unit, "lon": lon, "lat": lat}
            said["every_s"] = reading.every_s
            topic = topics.sensor(reading.sensor, reading.quantity)
            self._readings += self._council.publish(topic, said, retain=True)
        for happening in self._town.happenings.until(now_s):
            lon, lat = self._town.plane.globe(happening.place)
            if isinstance(happening, Offer):
                said = {"job": happening.number, **happening.values, "lon": lon, "lat": lat}
                self._council.publish(topics.BOARD, said)
                clauses = f"@top:{topics.OFFER_TOP};reply:{topics.RECEIPTS}"
                self._offers += self._council.publish(f"{topics.OFFERS}/{clauses}", said)
            else:
                said = {"kind": happening.kind, "text": happening.text, "lon": lon, "lat": lat}
                self._alerts += self._council.publish(topics.alert(happening.kind, lon, lat), said)

    def _look_for_broker(self) -> None:
        away = not self._council.up
        if away != self._said_away:
            self._said_away = away
            host, port = self._brokers[1 % len(self._brokers)]
            self._say(f"no broker at {host}:{port}; trying again" if away else f"connected to {host}:{port}")
