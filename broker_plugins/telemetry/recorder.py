"""Records in memory, column by column, until they are written; and how plugins come by them.

Every record gets its number when it is made. One for which there is no room is lost and counted, but keeps its number:
so whoever reads the spool sees the gap.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from broker_plugins.telemetry.schema import TABLES, SchemaError, table
from broker_plugins.telemetry.spool import Batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Room:
    """How many records may be in memory, those being written too.

    Args:
        most: the bound, for all tables together.
    """

    __slots__ = ("lost", "most", "used")

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self.lost = 0
        """Records that found no room."""


class Records:
    """The records of one table that are not being written yet.

    Args:
        name: the table's name.
        room: the memory all tables share.
        share: which share of all events is recorded, above 0 and at most 1; 0 records nothing.
    """

    __slots__ = ("_columns", "_names", "_own", "_room", "made", "name", "share")

    def __init__(self, name: str, room: Room, share: float = 1.0) -> None:
        self.name = name
        self.share = share
        self._room = room
        self.made = 0
        """How many records were made so far, the lost ones too: the sequence of the last one."""
        self._names = [field.name for field in table(name).fields[2:]]
        self._own = len(self._names) - 3
        self._columns: list[list[Any]] = [[] for _ in self._names]

    def __len__(self) -> int:
        return len(self._columns[0])

    def draw(self, pace: float = 1.0) -> float:
        """The weight of an event that may be recorded, with `pace` times its table's share: 0 if it is not to be."""
        share = self.share * pace
        if share >= 1.0:
            return 1.0
        return 1.0 / share if random.random() < share else 0.0

    def note(self, *values: Any) -> None:
        """Record something that happens now, if it is in the share; `values` as for `add`."""
        weight = self.draw()
        if weight:
            self.add(time.time_ns() // 1_000, weight, *values)

    def add(self, at_us: int, weight: float, *values: Any) -> None:
        """Record one event; `values` are the table's own fields in their order.

        Raises:
            SchemaError: there are more or fewer values than the table has fields.
        """
        if len(values) != self._own:
            raise SchemaError(f"{self.name} has {self._own} fields of its own, not {len(values)}")
        self.made += 1
        room = self._room
        if room.used >= room.most:
            room.lost += 1
            return
        room.used += 1
        for column, value in zip(self._columns, (self.made, at_us, weight, *values), strict=True):
            column.append(value)

    def extend(self, at_us: Sequence[int], weights: Sequence[float], *columns: Sequence[Any]) -> None:
        """Record many events at once, given by columns; what finds no room is lost from the end."""
        count = len(at_us)
        room = self._room
        first = self.made + 1
        self.made += count
        fits = min(count, room.most - room.used)
        if fits < count:
            room.lost += count - max(fits, 0)
            if fits <= 0:
                return
            at_us, weights = at_us[:fits], weights[:fits]
            columns = tuple(column[:fits] for column in columns)
        room.used += fits
        for column, values in zip(self._columns, (range(first, first + fits), at_us, weights, *columns), strict=True):
            column.extend(values)

    def take(self) -> Batch | None:
        """Hand over all records, None if there are none; they keep their room until it is given back."""
        if not self._columns[0]:
            return None
        columns = dict(zip(self._names, self._columns, strict=True))
        self._columns = [[] for _ in self._names]
        return Batch(self.name, columns)


class Recorder:
    """The records of all tables.

    Args:
        most: how many records may be in memory.
        shares: by table, the share of events that is recorded; all of them where it is not said.
    """

    def __init__(self, most: int, shares: Mapping[str, float]) -> None:
        self.room = Room(most)
        self.tables = {name: Records(name, self.room, shares.get(name, 1.0)) for name in TABLES}

    def take(self) -> list[Batch]:
        """Hand over the records of all tables."""
        return [batch for records in self.tables.values() if (batch := records.take()) is not None]

    def written(self, batch: Batch) -> None:
        """Records are on disk: their room is free."""
        self.room.used -= len(batch)

    def lost(self, batch: Batch) -> None:
        """Records will never be on disk."""
        self.room.used -= len(batch)
        self.room.lost += len(batch)


def records_of(plugins: Iterable[object], name: str) -> Records | None:
    """The table that other plugins record into; None where telemetry is off or leaves the table out.

    Args:
        plugins: the plugins of the engine (`engine.hooks.plugins`), once all of them exist.
        name: the table.
    """
    for plugin in plugins:
        recorder = getattr(plugin, "recorder", None)
        if isinstance(recorder, Recorder):
            records = recorder.tables[table(name).name]
            return records if records.share > 0.0 else None
    return None
