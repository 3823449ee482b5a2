"""Three ways to bring events to those who want them there: `$geo` filters, everything to everyone, cells as topics."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from benchmarks.geo_crowd import Crowd
from benchmarks.load import LoadError, packet, text
from benchmarks.peers import ALLOW_ANONYMOUS, locus, mosquitto

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.geo_world import City

GEO: Final = "broker_plugins.geo.plugin.GeoPlugin"
RANKED: Final = "broker_plugins.ranked.plugin.RankedPlugin"
PLUGINS = {**ALLOW_ANONYMOUS, GEO: {}, RANKED: {}}


def event_packets(world: City, topics: Sequence[str]) -> list[bytes]:
    """A PUBLISH for each event, all of the same size; the last digits are the event's number."""
    return [
        packet(0x30, text(topic) + f'{{"lon":{lon:.6f},"lat":{lat:.6f},"event":"{number:08d}"}}'.encode())
        for number, (topic, lon, lat) in enumerate(zip(topics, world.event_lon, world.event_lat, strict=True))
    ]


def position_packets(world: City) -> list[bytes]:
    """A report of where it is, for each client."""
    return [
        packet(0x30, text("locus/me/position") + f'{{"lon":{lon:.6f},"lat":{lat:.6f}}}'.encode())
        for lon, lat in world.positions()
    ]


class Way:
    """One way to bring events to those who want them: a crowd at a broker, and what it has to do when clients move."""

    def __init__(self, name: str, world: City, crowd: Crowd, packets: list[bytes], fewer: int = 1) -> None:
        self.name = name
        self.world = world
        self.crowd = crowd
        self.packets = packets[::fewer]
        """What is published; a way that sends everything to everyone publishes fewer of the events."""
        self.fewer = fewer
        self.rates: list[float] = []
        self.bytes: list[float] = []
        self.cpu: list[float] = []
        self.events: list[float] = []

    def copies(self, wanted: list[int]) -> list[int]:
        """How many deliveries each event causes."""
        return wanted

    def moved(self) -> None:
        """Clients are elsewhere: tell the broker."""

    def round(self, wanted: list[int]) -> None:
        """Publish every event once."""
        some = wanted[:: self.fewer]
        before = self.crowd.broker.cpu_seconds()
        seconds, received = self.crowd.burst(self.packets, self.copies(wanted)[:: self.fewer])
        self.rates.append(sum(some) / seconds)
        self.bytes.append(received / sum(some))
        self.cpu.append((self.crowd.broker.cpu_seconds() - before) / sum(some) * 1e6)
        self.events.append(len(some) / seconds)

    def check(self, wanted: list[NDArray[np.int64]]) -> None:
        """Compare what each client receives with what it wants: nothing may be missing."""
        counts = [len(each) for each in wanted]
        got = self.crowd.read(self.packets, self.copies(counts)[:: self.fewer])
        wishes: list[set[int]] = [set() for _ in got]
        for number in range(0, len(wanted), self.fewer):
            for client in wanted[number].tolist():
                wishes[client].add(number)
        for client, (received, wished) in enumerate(zip(got, wishes, strict=True)):
            if not wished <= set(received):
                raise LoadError(f"{self.name}: client {client} missed {len(wished - set(received))} events it wanted")
            if len(received) != len(set(received)):
                raise LoadError(f"{self.name}: client {client} received an event twice")
            if isinstance(self, WithLocus) and wished != set(received):
                raise LoadError(f"{self.name}: client {client} received {len(received) - len(wished)} events too many")


class WithLocus(Way):
    """`$geo` subscriptions."""

    def moved(self) -> None:
        """Every client says where it is."""
        self.crowd.tell(position_packets(self.world))


class Everything(Way):
    """Everyone subscribes to everything."""

    def copies(self, wanted: list[int]) -> list[int]:
        """One for every client."""
        return [self.world.clients] * len(wanted)


class Cells(Way):
    """Geohash cells as topics."""

    def __init__(self, world: City, crowd: Crowd, packets: list[bytes], fixed: list[set[str]]) -> None:
        super().__init__("mosquitto (b)", world, crowd, packets)
        self._fixed = fixed
        self._held = [set(each) for each in fixed]
        self._topics = [f"city/{cell}" for cell in world.event_cells()]

    def moved(self) -> None:
        """Every client leaves the cells it does not touch any more and subscribes to new ones."""
        packets = []
        for number, (fixed, moving) in enumerate(zip(self._fixed, self.world.cells(moving=True), strict=True)):
            wanted, held = fixed | moving, self._held[number]
            self._held[number] = wanted
            packets.append((sorted(held - wanted), sorted(wanted - held)))
        self.crowd.resubscribe(packets)

    def copies(self, wanted: list[int]) -> list[int]:
        """One for every client that covers the cell."""
        held = Counter(cell for cells in self._held for cell in cells)
        return [held[topic] for topic in self._topics[: len(wanted)]]


@contextlib.contextmanager
def three_ways(world: City, progress: Callable[[str], None]) -> Iterator[tuple[Way, Way, Way]]:
    """Locus, everything to everyone and cells as topics, each at a broker of its own, all clients subscribed."""
    with contextlib.ExitStack() as stack:

        def crowd_at(name: str, filters: Sequence[Sequence[str]]) -> Crowd:
            broker = stack.enter_context(locus(plugins=PLUGINS) if name == "locus" else mosquitto())
            started = time.perf_counter()
            crowd = Crowd(broker, filters)
            stack.callback(crowd.close)
            seconds = time.perf_counter() - started
            progress(f"{name}: {sum(map(len, filters)):,} filters of {len(filters):,} clients in {seconds:.1f} s")
            return crowd

        plain = event_packets(world, ["city/event"] * len(world.event_lon))
        by_cell = event_packets(world, [f"city/{cell}" for cell in world.event_cells()])
        fixed = world.cells(moving=False)
        yield (
            WithLocus("locus", world, crowd_at("locus", world.filters()), plain),
            Everything(
                "mosquitto (a)", world, crowd_at("mosquitto (a)", [["city/#"]] * world.clients), plain, fewer=10
            ),
            Cells(world, crowd_at("mosquitto (b)", [sorted(each) for each in fixed]), by_cell, fixed),
        )
