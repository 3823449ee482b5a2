"""What the map shows: messages go in, frames for a canvas come out. Everything in it is bounded.

A frame holds what changed since the revision that a page has seen, so that a page has no state here but a number.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.dashboard.payloads import line, number, place_of, point, read_object, rings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.dashboard.regions import Region

MOST_MOVERS: Final = 3_000
MOST_STREET_POINTS: Final = 40_000
MOST_FENCES: Final = 200
MOST_FENCE_POINTS: Final = 1_000
MOST_BLOCKS: Final = 2_000
MOST_DELIVERIES: Final = 300
"""So many lines from a message to who got it wait for the next frame; older ones are not drawn."""
MOST_ALERTS: Final = 50
MOST_GONE: Final = 6_000
MOST_HANDOVERS: Final = 50
QUIET_S: Final = 60.0
"""Who has not told its place for so long is taken off the map; sensors may be silent for longer."""
ALERT_S: Final = 45.0
BLOCKS_S: Final = 15.0
"""Blocks that were not told again for so long are not true any more."""
BLOCKS_TOPIC: Final = "$SYS/broker/locus/geo/blocks"
FENCES: Final = "locus/fence/"
_KINDS: Final = {"vehicles": "vehicle", "people": "person", "subscribers": "subscriber", "sensors": "sensor"}

Place = tuple[float, float]
Bounds = tuple[float, float, float, float]


@dataclass(slots=True)
class Mover:
    """Something at a place: a vehicle, a pedestrian, a subscriber, a sensor, or any topic with positions."""

    name: str
    kind: str
    place: Place
    heading: float | None
    radius_m: float | None
    heard_s: float
    revision: int

    def drawn(self) -> list[Any]:
        """As the page wants it: name, kind, longitude, latitude, heading, radius in metres."""
        return [self.name, self.kind, round(self.place[0], 6), round(self.place[1], 6), self.heading, self.radius_m]


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that happened somewhere, shown for a while."""

    number: int
    kind: str
    text: str
    place: Place
    heard_s: float


class Scene:
    """The map, for all pages.

    Args:
        most_movers: how many things are drawn; who was silent longest makes room.
    """

    def __init__(self, most_movers: int = MOST_MOVERS) -> None:
        self._most_movers = most_movers
        self._revision = 1
        self._movers: OrderedDict[str, Mover] = OrderedDict()  # in the order in which they were heard of
        self._gone: deque[tuple[int, str]] = deque(maxlen=MOST_GONE)
        self._deliveries: deque[tuple[int, Place, Place]] = deque(maxlen=MOST_DELIVERIES)
        self._alerts: deque[Alert] = deque(maxlen=MOST_ALERTS)
        self._handovers: deque[tuple[int, Place, str]] = deque(maxlen=MOST_HANDOVERS)
        self._streets: list[list[Place]] = []
        self._streets_revision = 0
        self._fences: OrderedDict[str, list[list[Place]]] = OrderedDict()
        self._fences_revision = 0
        self._blocks: list[list[Any]] = []
        self._blocks_revision = 0
        self._blocks_heard_s = 0.0
        self._regions: list[list[Any]] = []
        self._regions_revision = 0
        self._bounds: Bounds | None = None
        self._from_map = False
        self._alert_count = 0
        self.deliveries = 0
        """Deliveries that subscribers reported since the start."""
        self.index: dict[str, float] = {}
        """What the broker told of its spatial index beside the blocks."""

    # What is there.

    @property
    def revision(self) -> int:
        """Counts up with every change."""
        return self._revision

    def counts(self) -> dict[str, int]:
        """How many of each kind are on the map."""
        counts = dict.fromkeys(("vehicle", "person", "subscriber", "sensor", "other"), 0)
        for mover in self._movers.values():
            counts[mover.kind] += 1
        counts["fence"] = len(self._fences)
        counts["block"] = len(self._blocks)
        counts["region"] = len(self._regions)
        counts["alert"] = len(self._alerts)
        return counts

    @property
    def fences(self) -> list[str]:
        """The names of the fences there are."""
        return sorted(self._fences)

    def fence(self, name: str) -> list[list[Place]] | None:
        """The rings of a fence; None where there is none of that name."""
        return self._fences.get(name)

    def alerts(self) -> list[Alert]:
        """The latest alerts, newest first."""
        return list(reversed(self._alerts))

    @property
    def middle(self) -> Place | None:
        """The middle of what is shown; None while nothing is."""
        if self._bounds is None:
            return None
        west, south, east, north = self._bounds
        return (west + east) / 2, (south + north) / 2

    # Messages.

    def take(self, topic: str, payload: bytes, now_s: float) -> bool:
        """Take in a message; whether it had anything to do with the map."""
        if topic.startswith(FENCES):
            self._take_fence(topic.removeprefix(FENCES), payload)
            return True
        if topic == BLOCKS_TOPIC:
            self._take_blocks(payload, now_s)
            return True
        if topic.startswith(("$", "locus/")):
            return False
        content = read_object(payload)
        if content is None:
            return False
        levels = topic.split("/")
        if levels[0] == "city":
            return self._take_city(levels, content, now_s)
        place = place_of(content)
        if place is None:
            return False
        self._move(topic, "other", place, content, now_s)
        return True

    def _take_city(self, levels: list[str], content: dict[str, Any], now_s: float) -> bool:
        match levels:
            case ["city", "map"]:
                self._take_map(content)
                return True
            case ["city", "subscribers", name]:
                if content.get("online") is False:
                    self._forget(f"subscribers/{name}")
                return True
            case ["city", "subscribers", name, "received"]:
                self._take_report(f"subscribers/{name}", content)
                return True
            case ["city", "alerts", kind]:
                self._take_alert(kind, content, now_s)
                return True
            case ["city", group, name, *_] if group in _KINDS:
                place = place_of(content)
                if place is not None:
                    self._move(f"{group}/{name}", _KINDS[group], place, content, now_s)
                return place is not None
        return False

    def _take_map(self, content: dict[str, Any]) -> None:
        streets: list[list[Place]] = []
        left = MOST_STREET_POINTS
        listed = content.get("streets")
        for street in listed if isinstance(listed, list) else []:
            points = line(street, left)
            if len(points) > 1:
                streets.append([(round(lon, 6), round(lat, 6)) for lon, lat in points])
                left -= len(points)
            if left < 2:
                break
        bounds = content.get("bounds")
        sides = [number(side) for side in bounds] if isinstance(bounds, list) and len(bounds) == 4 else []
        if None not in sides and sides:
            west, south, east, north = (side for side in sides if side is not None)
            self._bounds, self._from_map = (west, south, east, north), True
        self._revision += 1
        self._streets, self._streets_revision = streets, self._revision

    def _move(self, key: str, kind: str, place: Place, content: dict[str, Any], now_s: float) -> None:
        self._revision += 1
        mover = self._movers.get(key)
        heading = number(content.get("heading"))
        radius_m = number(content.get("radius_m"))
        if mover is None:
            if len(self._movers) >= self._most_movers:
                self._forget(next(iter(self._movers)))
            self._movers[key] = Mover(key, kind, place, heading, radius_m, now_s, self._revision)
        else:
            mover.place, mover.heading, mover.heard_s, mover.revision = place, heading, now_s, self._revision
            mover.radius_m = radius_m
            self._movers.move_to_end(key)
        self._stretch(place)

    def _stretch(self, place: Place) -> None:
        """Without a map of the city the picture grows to what is in it."""
        if self._from_map:
            return
        lon, lat = place
        if self._bounds is None:
            self._bounds = (lon, lat, lon, lat)
        else:
            west, south, east, north = self._bounds
            self._bounds = (min(west, lon), min(south, lat), max(east, lon), max(north, lat))

    def _forget(self, key: str) -> None:
        if self._movers.pop(key, None) is not None:
            self._revision += 1
            self._gone.append((self._revision, key))

    def _take_report(self, key: str, content: dict[str, Any]) -> None:
        subscriber = self._movers.get(key)
        recent = content.get("recent")
        for each in recent if isinstance(recent, list) else []:
            place = place_of(each) if isinstance(each, dict) else None
            if place is None:
                continue
            self.deliveries += 1
            if subscriber is not None:
                self._revision += 1
                self._deliveries.append((self._revision, place, subscriber.place))

    def _take_alert(self, kind: str, content: dict[str, Any], now_s: float) -> None:
        place = place_of(content)
        if place is None:
            return
        self._revision += 1
        self._alert_count += 1
        text = content.get("text")
        said = text[:120] if isinstance(text, str) else kind
        self._alerts.append(Alert(self._alert_count, kind[:40], said, place, now_s))
        self._stretch(place)

    def _take_fence(self, name: str, payload: bytes) -> None:
        content = read_object(payload) if payload else None
        rings = rings_of(content, MOST_FENCE_POINTS) if content is not None else []
        self._revision += 1
        self._fences_revision = self._revision
        if not rings:
            self._fences.pop(name, None)
            return
        if name not in self._fences and len(self._fences) >= MOST_FENCES:
            self._fences.popitem(last=False)
        self._fences[name] = rings
        for corner in rings[0]:
            self._stretch(corner)

    def _take_blocks(self, payload: bytes, now_s: float) -> None:
        content = read_object(payload)
        listed = content.get("blocks") if content is not None else None
        blocks: list[list[Any]] = []
        for each in listed[:MOST_BLOCKS] if isinstance(listed, list) else []:
            if isinstance(each, list) and len(each) == 6 and each[0] in ("Q", "R"):
                first, second = point(each[1:3]), point(each[3:5])
                if first is not None and second is not None:
                    blocks.append([each[0], *first, *second, number(each[5]) or 0])
        self._blocks_heard_s = now_s
        self.index = {} if content is None else {k: v for k, x in content.items() if (v := number(x)) is not None}
        if blocks != self._blocks:
            self._revision += 1
            self._blocks, self._blocks_revision = blocks, self._revision

    def hand_over(self, client: str, what: str) -> None:
        """Show that a client moved to another node, where it is; nothing where that is not known."""
        name = client.removeprefix("city-subscriber-")
        mover = self._movers.get(f"subscribers/{name}")
        if mover is not None:
            self._revision += 1
            self._handovers.append((self._revision, mover.place, what[:60]))

    def show_regions(self, regions: Sequence[Region]) -> None:
        """Draw other blocks of the cluster's nodes; loads are told so often that a change of theirs alone is none."""
        drawn = sorted([block.owner, *(round(side, 6) for side in block.sides)] for block in regions)
        if drawn != self._regions:
            self._revision += 1
            self._regions, self._regions_revision = drawn, self._revision

    def tidy(self, now_s: float) -> None:
        """Take off the map what was silent for too long."""
        for key, mover in list(self._movers.items()):
            if mover.heard_s >= now_s - QUIET_S:
                break  # the others were heard of later
            if mover.kind != "sensor":
                self._forget(key)
        while self._alerts and self._alerts[0].heard_s < now_s - ALERT_S:
            self._alerts.popleft()
            self._revision += 1
        if self._blocks and self._blocks_heard_s < now_s - BLOCKS_S:
            self._revision += 1
            self._blocks, self._blocks_revision, self.index = [], self._revision, {}

    # Frames.

    def frame(self, since: int, now_s: float) -> dict[str, Any]:
        """What changed after a revision, for a page that shows it; everything, if that is too long ago."""
        self.tidy(now_s)
        whole = since <= 0 or since > self._revision
        whole = whole or (len(self._gone) == MOST_GONE and self._gone[0][0] > since)
        if whole:
            since = 0
        frame: dict[str, Any] = {
            "revision": self._revision,
            "whole": whole,
            "movers": [m.drawn() for m in self._movers.values() if m.revision > since],
            "gone": [] if whole else [key for revision, key in self._gone if revision > since],
            "deliveries": [] if whole else self._lines(since),
            "handovers": [] if whole else [[*place, what] for rev, place, what in self._handovers if rev > since],
            "alerts": [[a.number, *a.place, a.kind, a.text, round(now_s - a.heard_s, 1)] for a in self._alerts],
            "bounds": self._bounds,
        }
        if whole or self._streets_revision > since:
            frame["streets"] = self._streets
        if whole or self._fences_revision > since:
            frame["fences"] = [[name, rings] for name, rings in self._fences.items()]
        if whole or self._blocks_revision > since:
            frame["blocks"] = self._blocks
        if whole or self._regions_revision > since:
            frame["regions"] = self._regions
        return frame

    def _lines(self, since: int) -> list[list[float]]:
        lines = [(start, end) for revision, start, end in self._deliveries if revision > since]
        return [[round(v, 6) for v in (*start, *end)] for start, end in lines]
