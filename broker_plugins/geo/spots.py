"""Where the `$geo` subscriptions of one inner filter listen: spots, few of them in a list, many in a Q+R index.

Subscriptions that name the same area share a spot, so that a fence with ten thousand subscribers is one polygon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker_plugins.geo.zones import Zone, solid
from spatial_index.qr_index import QRIndex
from spatial_index.shapes import Point

if TYPE_CHECKING:
    from collections.abc import Hashable

    from broker_plugins.engine.subscription import Subscription
    from broker_plugins.grammar import Detect
    from broker_plugins.places import Place
    from broker_plugins.ranked.conditions import Conditions
    from spatial_index.shapes import Shape
    from spatial_index.spaces import Space

FEW: Final = 16
"""Up to so many spots are asked one by one: an index of its own costs a filter 15 KB."""


class Watch:
    """A subscription that wants to know of objects that enter, leave or cross."""

    __slots__ = ("conditions", "detect", "since")

    def __init__(self, detect: Detect, conditions: Conditions | None, since: int) -> None:
        self.detect = detect
        self.conditions = conditions
        self.since = since
        """The engine's sequence when the subscription was made: what an object did earlier does not count."""


class Spot:
    """One area, and the subscriptions of one filter that name it."""

    __slots__ = ("_zone", "group", "key", "members", "picky", "shape", "watchers")

    def __init__(self, group: Group, key: Hashable) -> None:
        self.group = group
        self.key = key
        self.shape: Shape | None = None
        """None while nobody knows where it is: a fence that is not there, a subscriber without a position."""
        self._zone: Zone | None = None
        self.members: dict[Subscription, None] = {}
        """Want everything inside."""
        self.picky: dict[Subscription, Conditions] | None = None
        """Want what is inside and satisfies conditions."""
        self.watchers: dict[Subscription, Watch] | None = None

    def zone(self) -> Zone | None:
        """The area, to be asked directly."""
        if self._zone is None and self.shape is not None:
            self._zone = Zone(self.group.space, self.shape)
        return self._zone

    def put(self, shape: Shape | None, zone: Zone | None = None) -> None:
        """Note another shape, with its zone where that is made already; only the group does this."""
        self.shape = shape
        self._zone = zone

    def holds(self, place: Place) -> bool:
        """Whether a place is in the area."""
        zone = self.zone()
        return zone is not None and zone.holds(place)

    @property
    def moves(self) -> bool:
        """Whether it is around a client, wherever that is."""
        return isinstance(self.key, tuple)

    @property
    def session(self) -> object:
        """The session of the client it is around; None if it is around none."""
        return self.key[0] if isinstance(self.key, tuple) else None

    @property
    def deserted(self) -> bool:
        """Whether no subscription is left."""
        return not (self.members or self.picky or self.watchers)


class Group:
    """The spots of one inner filter.

    Args:
        inner: the filter.
        space: the space they are in.
    """

    __slots__ = ("_index", "_placed", "crossing", "inner", "picky", "space", "spots", "watched")

    def __init__(self, inner: str, space: Space) -> None:
        self.inner = inner
        self.space = space
        self.spots: dict[Hashable, Spot] = {}
        self._placed: dict[Spot, Zone] = {}
        """Spots that are somewhere, while they are few."""
        self._index: QRIndex[Spot] | None = None
        self.picky = 0
        """How many subscriptions have conditions."""
        self.watched = 0
        """How many subscriptions watch objects come and go."""
        self.crossing = 0
        """How many of those want to know of crossings."""

    def spot(self, key: Hashable) -> Spot:
        """The spot of an area, made if it is new."""
        spot = self.spots.get(key)
        if spot is None:
            spot = self.spots[key] = Spot(self, key)
        return spot

    def place(self, spot: Spot, shape: Shape | None, moving: bool = False) -> None:
        """Put a spot somewhere, or nowhere.

        Raises:
            SpatialIndexError: the shape is none of this space.
        """
        index = self._index
        if index is None:
            if shape is None:
                self._placed.pop(spot, None)
            else:
                zone = Zone(self.space, shape)
                spot.put(shape, zone)
                self._placed[spot] = zone
                if len(self._placed) > FEW:
                    self._make_index()
                return
        elif shape is None:
            if spot.shape is not None:
                index.remove(spot)
        elif spot.shape is None:
            index.insert(spot, shape, moving=moving)
        else:
            index.move(spot, shape)
        spot.put(shape)

    def _make_index(self) -> None:
        self._index = QRIndex(self.space)
        for spot in self._placed:
            assert spot.shape is not None
            self._index.insert(spot, spot.shape)
        self._placed.clear()

    def drop(self, spot: Spot) -> None:
        """Forget a spot that nobody needs."""
        self.place(spot, None)
        self.spots.pop(spot.key, None)

    @property
    def index(self) -> QRIndex[Spot] | None:
        """The index of the spots; None while they are few."""
        return self._index

    def find(self, place: Place) -> list[Spot]:
        """The spots that a point is in, or that have a place in common with a box."""
        index = self._index
        if index is None:
            return [spot for spot, zone in self._placed.items() if zone.holds(place)]
        if len(place) == 2:
            return index.at(*place)
        box = solid(place, self.space)
        return index.at(box.x, box.y) if isinstance(box, Point) else index.intersecting(box)
