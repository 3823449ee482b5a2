"""Where objects were when they were last heard of, and which watched areas they were in: in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_plugins.geo.spots import Spot
    from broker_plugins.places import Place


class Track:
    """An object's last report.

    Attributes:
        place: where it was.
        inside: the watched spots it was in.
        sequence: the engine's count of messages then.
    """

    __slots__ = ("inside", "place", "sequence")

    def __init__(self, place: Place, inside: frozenset[Spot], sequence: int) -> None:
        self.place = place
        self.inside = inside
        self.sequence = sequence


class Tracks:
    """The last report of each object; those silent for longest are forgotten first.

    Args:
        most_objects: how many objects are remembered.
        most_insides: in how many areas they may be all together.
    """

    __slots__ = ("_by_topic", "_most_insides", "_most_objects", "forgotten", "insides")

    def __init__(self, most_objects: int, most_insides: int) -> None:
        self._by_topic: dict[str, Track] = {}
        self._most_objects = most_objects
        self._most_insides = most_insides
        self.insides = 0
        self.forgotten = 0
        """How many objects were forgotten because there were too many."""

    def __len__(self) -> int:
        return len(self._by_topic)

    def get(self, topic: str) -> Track | None:
        """The last report of an object."""
        return self._by_topic.get(topic)

    def report(self, topic: str, place: Place, inside: frozenset[Spot], sequence: int) -> None:
        """Note where an object is now."""
        tracks = self._by_topic
        before = tracks.pop(topic, None)
        if before is not None:
            self.insides -= len(before.inside)
        tracks[topic] = Track(place, inside, sequence)
        self.insides += len(inside)
        while len(tracks) > self._most_objects or (self.insides > self._most_insides and len(tracks) > 1):
            oldest = next(iter(tracks))
            self.insides -= len(tracks.pop(oldest).inside)
            self.forgotten += 1

    def clear(self) -> None:
        """Nobody watches any more."""
        self._by_topic.clear()
        self.insides = 0
