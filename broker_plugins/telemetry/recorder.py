"""Records in memory, until they are written; and how plugins come by them.

Every record gets its number when it is made. One for which there is no room is lost and counted, but keeps its number:
so whoever reads the spool sees the gap. A record is one tuple from here to the thread that makes columns of it: what is
done for every record on the broker's event loop is to make that tuple.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, Final

from broker_plugins.telemetry.schema import TABLES, SchemaError, table
from broker_plugins.telemetry.spool import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from broker_plugins.telemetry.journal import Row


LIVE: Final = frozenset({"publishes", "deliveries", "drops"})
"""Tables that are written as soon as it is time, since live metrics come from them."""
FEW: Final = 1_000
"""Records of another table that wait for more of them: fewer, larger files."""


class Room:
    """How many records may be in memory, those being written too.

    Args:
        most: the bound, for all tables together.
    """

    __slots__ = ("lost", "most", "touched", "used", "wake", "woken")

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self.lost = 0
        """Records that found no room."""
        self.touched: list[Records] = []
        """Tables with records that nobody was shown yet."""
        self.wake: Callable[[], None] | None = None
        """Called when there is something to show, once until it was shown."""
        self.woken = False


class Records:
    """The records of one table that are not being written yet.

    Args:
        name: the table's name.
        room: the memory all tables share.
        share: which share of all events is recorded, above 0 and at most 1; 0 records nothing.
    """

    __slots__ = ("_own", "_room", "_rows", "_shown", "made", "name", "share", "since")

    def __init__(self, name: str, room: Room, share: float = 1.0) -> None:
        self.name = name
        self.share = share
        self._room = room
        self.made = 0
        """How many records were made so far, the lost ones too: the sequence of the last one."""
        self.since = 0.0
        """When the oldest record was made, by the monotonic clock."""
        self._own = len(table(name).own)
        self._rows: list[Row] = []
        self._shown = 0

    def __len__(self) -> int:
        return len(self._rows)

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
        first, fits = self.begin(1)
        if fits:
            self.extend([(first, at_us, weight, *values)])

    def begin(self, count: int) -> tuple[int, int]:
        """Number so many records: the number of the first one, and for how many there is room; the others are lost.

        Those for which there is room are then to be given to `extend`.
        """
        first = self.made + 1
        self.made += count
        room = self._room
        fits = min(count, room.most - room.used)
        if fits < count:
            fits = max(fits, 0)
            room.lost += count - fits
        return first, fits

    def extend(self, rows: Collection[Row]) -> None:
        """Record what was numbered: the sequence, the time in microseconds, the weight, and the table's own fields."""
        if not rows:
            return
        mine = self._rows
        if self._shown == len(mine):
            self._room.touched.append(self)
            if not mine:
                self.since = time.monotonic()
        mine += rows
        room = self._room
        room.used += len(rows)
        if not room.woken and room.wake is not None:
            room.woken = True
            room.wake()

    def unshown(self) -> list[Row]:
        """Records made since `shown` was last called."""
        return self._rows[self._shown :] if self._shown else self._rows

    def shown(self) -> None:
        """Whoever asked for `unshown` has them."""
        self._shown = len(self._rows)

    def take(self) -> Rows | None:
        """Hand over all records, None if there are none; they keep their room until it is given back."""
        rows = self._rows
        if not rows:
            return None
        self._rows = []
        if self._shown < len(rows):
            self._room.touched.remove(self)
        self._shown = 0
        return Rows(self.name, rows)


class Recorder:
    """The records of all tables.

    Args:
        most: how many records may be in memory.
        shares: by table, the share of events that is recorded; all of them where it is not said.
    """

    def __init__(self, most: int, shares: Mapping[str, float]) -> None:
        self.room = Room(most)
        self.tables = {name: Records(name, self.room, shares.get(name, 1.0)) for name in TABLES}

    def due(self, now_s: float, patience_s: float) -> list[Records]:
        """Tables to be written now; those that are not live wait so long for more records than a few."""
        return [
            records
            for name, records in self.tables.items()
            if len(records) and (name in LIVE or len(records) >= FEW or now_s - records.since >= patience_s)
        ]

    def take(self, due: Iterable[Records] | None = None) -> list[Rows]:
        """Hand over the records of some tables, or of all."""
        wanted = self.tables.values() if due is None else due
        return [rows for records in wanted if (rows := records.take()) is not None]

    def written(self, rows: Rows) -> None:
        """Records are on disk: their room is free."""
        self.room.used -= len(rows)

    def lost(self, rows: Rows) -> None:
        """Records will never be on disk."""
        self.room.used -= len(rows)
        self.room.lost += len(rows)


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
