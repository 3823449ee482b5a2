"""What happens in the city besides traffic: fences, sensors, jobs and those who want them, alerts.

All of it is drawn from a seed, and time is told from outside: nothing here knows a clock or a broker.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from clients.city.plane import Point
from clients.city.streets import BLOCK_M
from clients.city.topics import ATTRIBUTES, OFFERS

if TYPE_CHECKING:
    from clients.city.streets import Streets

FENCES: Final = ("harbour", "market", "museum", "school", "stadium", "station")
FENCE_CORNERS: Final = 12
FENCES_APART: Final = 2.2
"""How far the middles of two fences are from each other at least, in blocks: they do not overlap."""
QUANTITIES: Final = {
    "temperature": ("°C", 18.0, 0.05),
    "noise": ("dB", 62.0, 1.5),
    "air": ("µg/m³", 21.0, 0.4),
    "parking": ("free", 40.0, 2.0),
}
"""What sensors measure: its unit, where it begins, and how far it goes in a reading."""
RHYTHMS_S: Final = (2.0, 4.0, 6.0, 10.0, 30.0, 120.0)
SENSORS: Final = 24
DEAD_AFTER_READINGS: Final = 8
OFFER_GAP_S: Final = 1.5
ALERT_GAP_S: Final = 12.0
ALERTS: Final = {
    "fire": "Fire reported: keep the street clear",
    "flood": "Water on the road: take another way",
    "lost-child": "A child in a red coat is looking for its parents",
    "concert": "Music in five minutes",
}


@dataclass(frozen=True, slots=True)
class Fence:
    """A place with a border.

    Args:
        name: how `$geo/fence:NAME` calls it.
        ring: its corners, in order.
    """

    name: str
    ring: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Worker:
    """Somebody who looks for a job.

    Args:
        name: of the worker.
        filter: which offers they want.
    """

    name: str
    filter: str


@dataclass(frozen=True, slots=True)
class Offer:
    """A job.

    Args:
        number: of the offer.
        values: what workers judge it by.
        place: where it is.
    """

    number: int
    values: dict[str, float]
    place: Point


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that everybody nearby should know.

    Args:
        kind: of the alert.
        text: what to say.
        place: where it is.
    """

    kind: str
    text: str
    place: Point


@dataclass(frozen=True, slots=True)
class Reading:
    """What a sensor measured.

    Args:
        sensor: its name.
        quantity: what it measures.
        unit: of the value.
        value: what it measured.
        place: where the sensor is.
        every_s: its usual rhythm.
    """

    sensor: str
    quantity: str
    unit: str
    value: float
    place: Point
    every_s: float


def fences_of(streets: Streets, seed: int) -> tuple[Fence, ...]:
    """The fences of a city: roundish, each around another crossing, far enough from each other and from the square."""
    rng = random.Random(f"{seed}/fences")
    taken = [Point(0.0, 0.0)]
    for crossing in rng.sample(streets.crossings, len(streets.crossings)):
        if all(crossing.distance_to(other) >= FENCES_APART * BLOCK_M for other in taken):
            taken.append(crossing)
    fences = []
    for name, middle in zip(FENCES, taken[1:], strict=False):
        radius = rng.uniform(0.5, 0.9) * BLOCK_M
        ring = []
        for corner in range(FENCE_CORNERS):
            angle, far = math.tau * corner / FENCE_CORNERS, radius * rng.uniform(0.85, 1.15)
            ring.append(Point(middle.x + far * math.cos(angle), middle.y + far * math.sin(angle)))
        fences.append(Fence(name, tuple(ring)))
    return tuple(fences)


def workers_of(count: int, seed: int) -> tuple[Worker, ...]:
    """Workers, some with narrow and some with wide wishes."""
    rng = random.Random(f"{seed}/workers")
    workers = []
    for number in range(count):
        wishes = []
        for attribute, (low, high) in ATTRIBUTES.items():
            if rng.random() < 0.25:
                continue
            width = (high - low) * rng.choice((0.15, 0.3, 0.6))
            begin = rng.uniform(low, high - width)
            wishes.append(f"{attribute}={begin:.1f}..{begin + width:.1f}")
        wishes = wishes or ["salary>=0"]
        workers.append(Worker(f"w{number}", f"$where/{','.join(wishes)}/{OFFERS}"))
    return tuple(workers)


class Happenings:
    """Offers and alerts as they come up, at irregular times.

    Args:
        streets: where they may be.
        seed: the same one makes the same happenings.
    """

    def __init__(self, streets: Streets, seed: int) -> None:
        self._streets = streets
        self._jobs = random.Random(f"{seed}/offers")
        self._dangers = random.Random(f"{seed}/alerts")
        self._offers = 0
        self._next_offer_s = self._jobs.expovariate(1.0 / OFFER_GAP_S)
        self._next_alert_s = self._dangers.uniform(0.2, 1.0) * ALERT_GAP_S

    def until(self, now_s: float) -> list[Offer | Alert]:
        """What has come up since the last time, up to a time in seconds after the beginning."""
        happened: list[Offer | Alert] = []
        while self._next_offer_s <= now_s:
            happened.append(self._offer())
            self._next_offer_s += self._jobs.expovariate(1.0 / OFFER_GAP_S)
        while self._next_alert_s <= now_s:
            kind = self._dangers.choice(tuple(ALERTS))
            happened.append(Alert(kind, ALERTS[kind], self._dangers.choice(self._streets.crossings)))
            self._next_alert_s += self._dangers.uniform(0.5, 1.5) * ALERT_GAP_S
        return happened

    def _offer(self) -> Offer:
        self._offers += 1
        values = {name: round(self._jobs.uniform(low, high), 1) for name, (low, high) in ATTRIBUTES.items()}
        return Offer(self._offers, values, self._jobs.choice(self._streets.crossings))


@dataclass(slots=True)
class _Sensor:
    name: str
    quantity: str
    place: Point
    every_s: float
    irregular: bool
    dies: bool
    value: float
    readings: int = 0


class Sensors:
    """Sensors, each with a rhythm: most are regular, some are not, and some fall silent after a few readings.

    Args:
        streets: where they stand.
        seed: the same one makes the same readings.
    """

    def __init__(self, streets: Streets, seed: int) -> None:
        self._rng = random.Random(f"{seed}/sensors")
        self._due: list[tuple[float, int]] = []
        self._sensors: list[_Sensor] = []
        for number in range(SENSORS):
            place = self._rng.choice(streets.crossings)
            for quantity, (_, begin, _) in QUANTITIES.items():
                if quantity != "temperature" and self._rng.random() < 0.5:
                    continue
                every = RHYTHMS_S[number % len(RHYTHMS_S)]
                kind = self._rng.random()
                sensor = _Sensor(f"s{number}", quantity, place, every, kind < 0.25, kind > 0.9, begin)
                # All report at the beginning, so that there is something to retain.
                heapq.heappush(self._due, (self._rng.uniform(0.0, min(every, 10.0)), len(self._sensors)))
                self._sensors.append(sensor)

    @property
    def topics(self) -> int:
        """How many topics there are for them."""
        return len(self._sensors)

    def until(self, now_s: float) -> list[Reading]:
        """What they have measured since the last time, up to a time in seconds after the beginning."""
        readings = []
        while self._due and self._due[0][0] <= now_s:
            at_s, number = heapq.heappop(self._due)
            sensor = self._sensors[number]
            unit, _, step = QUANTITIES[sensor.quantity]
            sensor.value = max(0.0, sensor.value + self._rng.gauss(0.0, step))
            sensor.readings += 1
            value = round(sensor.value, 2)
            readings.append(Reading(sensor.name, sensor.quantity, unit, value, sensor.place, sensor.every_s))
            if not (sensor.dies and sensor.readings >= DEAD_AFTER_READINGS):
                gap = self._rng.expovariate(1.0 / sensor.every_s) if sensor.irregular else sensor.every_s
                heapq.heappush(self._due, (at_s + gap * self._rng.uniform(0.97, 1.03), number))
        return readings
