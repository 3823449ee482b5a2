"""Fences that a page watches: each has a connection of its own, for a message does not say by which filter it came."""

from __future__ import annotations

import json
import math
import re
import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_jobs.dashboard.feed import Address, Feed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_WATCHED: Final = 6
MOST_MESSAGES: Final = 30
MOST_CORNERS: Final = 200
METRES_A_DEGREE: Final = 111_320.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class BadFenceError(ValueError):
    """A fence cannot be put; the message says why and what would do."""


@dataclass(frozen=True, slots=True)
class FenceMessage:
    """A message that happened inside a fence."""

    topic: str
    heard_s: float


def fence_payload(ring: Sequence[tuple[float, float]]) -> bytes:
    """The GeoJSON polygon with these corners, closed.

    Raises:
        BadFenceError: there are too few or too many of them, or they are not on the Earth.
    """
    corners = [(round(lon, 7), round(lat, 7)) for lon, lat in ring]
    if corners and corners[0] == corners[-1]:
        corners.pop()
    if len(set(corners)) < 3:
        raise BadFenceError("A fence needs three corners or more.")
    if len(corners) > MOST_CORNERS:
        raise BadFenceError(f"A fence drawn here has at most {MOST_CORNERS} corners, not {len(corners)}.")
    if not all(math.isfinite(lon) and math.isfinite(lat) for lon, lat in corners):
        raise BadFenceError("Every corner needs a longitude and a latitude.")
    return json.dumps({"type": "Polygon", "coordinates": [[*corners, corners[0]]]}).encode()


def square(lon: float, lat: float, size_m: float) -> list[tuple[float, float]]:
    """The corners of a square of a size around a place.

    Raises:
        BadFenceError: the place is not on the Earth, or the size is none.
    """
    if not (-180 <= lon <= 180 and -85 <= lat <= 85):
        raise BadFenceError(f"{lon:g}, {lat:g} is no place: longitude -180 to 180, latitude -85 to 85.")
    if not 1 <= size_m <= 1_000_000:
        raise BadFenceError(f"{size_m:g} m is no size for a fence: 1 to 1,000,000 m.")
    up = size_m / 2 / METRES_A_DEGREE
    aside = up / math.cos(math.radians(lat))
    return [(lon - aside, lat - up), (lon + aside, lat - up), (lon + aside, lat + up), (lon - aside, lat + up)]


def check_name(name: str) -> str:
    """A fence's name, if it can stand in a topic and in a filter.

    Raises:
        BadFenceError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise BadFenceError(f"{name!r} is no name for a fence: letters, digits, dots, dashes, up to 64.")
    return name


class Watched:
    """One fence and its latest messages."""

    def __init__(self, name: str, inner: str, address: Address) -> None:
        self.name = name
        self.filter = f"$geo/fence:{name}/{inner}"
        self.count = 0
        self._messages: deque[FenceMessage] = deque(maxlen=MOST_MESSAGES)
        self._lock = threading.Lock()
        self.feed = Feed(address, [self.filter], self._take)

    def _take(self, topic: str, _payload: bytes, now_s: float, _retained: bool) -> None:
        with self._lock:
            self.count += 1
            self._messages.append(FenceMessage(topic, now_s))

    def latest(self, most: int = 8) -> list[FenceMessage]:
        """The last messages, newest first."""
        with self._lock:
            return list(reversed(self._messages))[:most]


class FenceWatch:
    """The fences that are watched, for all pages: the one longest watched makes room.

    Args:
        address: the broker.
        inner: the ordinary filter that is listened to inside fences.
        make: makes one; tests have their own.
    """

    def __init__(self, address: Address, inner: str, make: Callable[[str, str, Address], Watched] = Watched) -> None:
        self._address = address
        self._inner = inner
        self._make = make
        self._watched: OrderedDict[str, Watched] = OrderedDict()

    def watch(self, name: str) -> Watched:
        """Listen inside a fence from now on.

        Raises:
            BadFenceError: it cannot have that name.
        """
        check_name(name)
        watched = self._watched.get(name)
        if watched is None:
            while len(self._watched) >= MOST_WATCHED:
                self.leave(next(iter(self._watched)))
            watched = self._watched[name] = self._make(name, self._inner, self._address)
            watched.feed.start()
        return watched

    def leave(self, name: str) -> None:
        """Listen no more."""
        watched = self._watched.pop(name, None)
        if watched is not None:
            threading.Thread(target=watched.feed.stop, daemon=True).start()  # stopping waits for its thread

    def all(self) -> list[Watched]:
        """The fences that are watched, the latest first."""
        return list(reversed(self._watched.values()))

    def close(self) -> None:
        """Leave all."""
        for watched in self._watched.values():
            watched.feed.stop()
        self._watched.clear()
