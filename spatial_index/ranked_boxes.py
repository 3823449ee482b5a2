"""`RankedBoxes`: the k most accurate boxes that contain a point of up to 16 attributes, while boxes come and go.

Accuracy is the product of the widths a box has on the declared attributes, each as a share of the attribute's domain.
The best candidates come out of bitmaps in the order of rank (`box_shelf`); what was added lately lies on a tray that is
sorted in a step at a time (`shelf_renewal`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic, TypeVar

from spatial_index.box_shelf import MOST_ATTRIBUTES, Shelf
from spatial_index.errors import BadAttribute, BadInterval, DuplicateId, UnknownId
from spatial_index.interval import LARGEST, Interval, finite, positive_count
from spatial_index.shelf_renewal import SMALLEST_TRAY, Renewal, steps_for

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

Id = TypeVar("Id", bound="Hashable")

# One dictionary of a million entries takes tens of milliseconds when it grows; many small ones grow one at a time.
SHARDS = 256
_SHARD_MASK = SHARDS - 1


class RankedBoxes(Generic[Id]):
    """Ids with boxes, a box being an interval for each attribute that it mentions.

    A point matches a box if it has every attribute the box mentions, each inside its interval. The rank is the product
    of the normalised widths over the declared attributes: the share of the domain that the interval covers, 1 for an
    attribute not mentioned. Smaller is better, and ties go to the box added first. Attributes that are not declared
    filter, but do not rank. Ids are hashable, and each is held once.

    Args:
        domains: the declared attributes, each with the lowest and the highest value it takes.
        boxes: ids and boxes to begin with.

    Raises:
        BadAttribute: a domain is no pair of finite numbers with the lower one first, or there are more than 16.
    """

    def __init__(
        self,
        domains: Mapping[str, tuple[float, float]] | None = None,
        boxes: Iterable[tuple[Id, Mapping[str, Interval]]] = (),
    ) -> None:
        self._domains = {name: _domain(name, domain) for name, domain in (domains or {}).items()}
        if len(self._domains) > MOST_ATTRIBUTES:
            raise BadAttribute(f"{len(self._domains)} attributes are declared; {MOST_ATTRIBUTES} are the most")
        # Columns of the shelf by attribute: the declared ones first, the others as boxes mention them.
        self._columns = {name: column for column, name in enumerate(self._domains)}
        self._mentions = [0] * len(self._columns)
        self._slots: list[dict[Id, int]] = [{} for _ in range(SHARDS)]
        self._ids: list[Id | None] = []
        self._free: list[int] = []
        self._order = 0
        self._count = 0
        edges = [[low + (high - low) * part / 64 for part in range(1, 64)] for low, high in self._domains.values()]
        self._shelf = Shelf(SMALLEST_TRAY, 0, 0, edges, [])
        self._renewal: Renewal | None = None
        for identity, box in boxes:
            self.add(identity, box)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, identity: Id) -> bool:
        return identity in self._slots[hash(identity) & _SHARD_MASK]

    def __iter__(self) -> Iterator[Id]:
        for shard in self._slots:
            yield from shard

    @property
    def domains(self) -> dict[str, tuple[float, float]]:
        """The declared attributes and their domains."""
        return dict(self._domains)

    @property
    def attributes(self) -> list[str]:
        """The attributes that are declared or mentioned by a box: what a point is asked for."""
        return [name for name, column in self._columns.items() if name in self._domains or self._mentions[column]]

    def rank_of(self, box: Mapping[str, Interval]) -> float:
        """The product of normalised widths that a box has or would have; smaller is better."""
        rank = 1.0
        for name, (low, high) in self._domains.items():
            interval = box.get(name)
            if interval is not None:
                covered = min(interval.high, high) - max(interval.low, low)
                rank *= max(0.0, covered) / (high - low)
        return rank

    def add(self, identity: Id, box: Mapping[str, Interval], order: int | None = None) -> None:
        """Hold a box under a new id.

        Args:
            identity: the id.
            box: the intervals by attribute.
            order: its age where that is not the order of adding: on a tie the smaller one comes first. Ages may be any
                64-bit integers, but all boxes have one or none has.

        Raises:
            DuplicateId: the id is held already.
            BadInterval: the box has something else than an `Interval` for an attribute.
            BadAttribute: with this box more than 16 attributes would be declared or mentioned.
        """
        shard = self._slots[hash(identity) & _SHARD_MASK]
        if identity in shard:
            raise DuplicateId(f"{identity!r} is held already; remove it first, or use another id")
        for name, interval in box.items():
            if interval.__class__ is not Interval:
                raise BadInterval(f"attribute {name!r} of {identity!r} is {interval!r}; an Interval is needed")
        self._make_columns(box)
        attributes = len(self._mentions)
        bounds = [-math.inf] * (2 * attributes)
        for name, interval in box.items():
            column = self._columns[name]
            bounds[column] = max(interval.first, -LARGEST)
            bounds[attributes + column] = max(-interval.last, -LARGEST)
            self._mentions[column] += 1
        if self._free:
            slot = self._free.pop()
            self._ids[slot] = identity
        else:
            slot = len(self._ids)
            self._ids.append(identity)
        shard[identity] = slot
        self._shelf.add(slot, self.rank_of(box), self._order if order is None else order, bounds)
        self._order += 1
        self._count += 1
        self._advance()

    def remove(self, identity: Id) -> None:
        """Let go of an id and its box.

        Raises:
            UnknownId: the id is not held.
        """
        slot = self._slots[hash(identity) & _SHARD_MASK].pop(identity, None)
        if slot is None:
            raise UnknownId(f"{identity!r} is not held, so it cannot be removed")
        place = self._shelf.place_of(slot)
        for column, low in enumerate(self._shelf.bounds[place, : len(self._mentions)].tolist()):
            if low > -math.inf:
                self._mentions[column] -= 1
        self._shelf.clear(place)
        if self._renewal is not None:
            self._renewal.clear(slot)
        self._ids[slot] = None
        self._free.append(slot)
        self._count -= 1
        self._advance()

    def _make_columns(self, box: Mapping[str, Interval]) -> None:
        """Give a box's new attributes a column, one that nobody mentions any more if there is one."""
        names = [name for name in box if name not in self._columns]
        if not names:
            return
        kept = self._domains.keys() | box.keys()
        unused = [name for name, column in self._columns.items() if not self._mentions[column] and name not in kept]
        if len(names) > MOST_ATTRIBUTES - len(self._mentions) + len(unused):
            raise BadAttribute(
                f"attributes {names} are new, and {len(self.attributes)} are declared or mentioned by other boxes; "
                f"{MOST_ATTRIBUTES} are the most for one index"
            )
        for name in names:
            if unused:
                self._columns[name] = self._columns.pop(unused.pop())
                continue
            self._columns[name] = len(self._mentions)
            self._mentions.append(0)
            self._shelf.add_attribute()
            if self._renewal is not None:
                self._renewal.new.add_attribute()

    def _advance(self) -> None:
        """Start sorting the tray in when it is nearly full, or do the next step of it."""
        if self._renewal is None:
            if self._shelf.tray_left <= steps_for(self._count):
                self._renewal = Renewal(self._shelf, len(self._ids))
        elif self._renewal.step():
            self._shelf = self._renewal.new
            self._renewal = None

    def top(self, point: Mapping[str, float], k: int) -> list[Id]:
        """The ids of the k best boxes that contain a point, best first, fewer if fewer do.

        Attributes that no box mentions and that are not declared are not looked at.

        Raises:
            BadCoordinate: a value is NaN, infinite or no number.
            BadCount: k is below one.
        """
        return self._best(point, positive_count(k))

    def containing(self, point: Mapping[str, float]) -> list[Id]:
        """The ids of all boxes that contain a point, best first.

        Raises:
            BadCoordinate: a value is NaN, infinite or no number.
        """
        return self._best(point, max(1, self._count))

    def _best(self, point: Mapping[str, float], k: int) -> list[Id]:
        values: list[float | None] = [None] * len(self._mentions)
        for name, column in self._columns.items():
            value = point.get(name)
            if value is not None:
                # Most are floats already, and only they need no closer look.
                plain = value.__class__ is float and -LARGEST <= value <= LARGEST
                values[column] = value if plain else finite(value, name)
        ids = self._ids
        return [ids[slot] for slot in self._shelf.best(values, k)]  # type: ignore[misc]  # a slot in use has its id

    def __repr__(self) -> str:
        return f"<RankedBoxes of {self._count} over {', '.join(self.attributes) or 'no attributes'}>"


def _domain(name: str, domain: tuple[float, float]) -> tuple[float, float]:
    """A domain as two floats, if it is one."""
    try:
        low, high = domain
    except (TypeError, ValueError) as error:
        raise BadAttribute(f"the domain of {name!r} is {domain!r}; it must be a pair (lowest, highest)") from error
    try:
        interval = Interval(low, high)
    except BadInterval as error:
        raise BadAttribute(f"the domain of {name!r} is {domain!r}: {error}") from error
    if not 0.0 < interval.high - interval.low < float("inf"):
        raise BadAttribute(f"the domain of {name!r} is {domain!r}; its width must be positive and finite")
    return interval.low, interval.high
