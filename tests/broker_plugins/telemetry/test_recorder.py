"""Records keep their numbers whatever becomes of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker_plugins.telemetry import SchemaError
from broker_plugins.telemetry.recorder import FEW, Recorder, Records, Room, records_of

if TYPE_CHECKING:
    from broker_plugins.telemetry.spool import Rows


class Positions(RuleBasedStateMachine):
    """Adding, taking, writing and losing, against a list of what should be there."""

    @initialize(most=st.integers(1, 12))
    def begin(self, most: int) -> None:
        self.recorder = Recorder(most, {})
        self.records = self.recorder.tables["positions"]
        self.most = most
        self.made = self.lost = 0
        self.buffered: list[tuple[int, int]] = []
        self.woken = 0
        self.asked = False
        self.unshown: list[tuple[int, int]] = []
        self.recorder.room.wake = self._wake
        self.taken: list[tuple[Rows, list[tuple[int, int]]]] = []

    def _wake(self) -> None:
        self.woken += 1

    def _used(self) -> int:
        return len(self.buffered) + sum(len(rows) for _, rows in self.taken)

    def _expect(self, value: int) -> None:
        self.made += 1
        if self._used() < self.most:
            self.buffered.append((self.made, value))
            self.unshown.append((self.made, value))
            self.asked = True
        else:
            self.lost += 1

    @rule(value=st.integers(0, 9))
    def add(self, value: int) -> None:
        self.records.add(value, 1.0, "c", 0.0, 0.0)
        self._expect(value)

    @rule(values=st.lists(st.integers(0, 9), max_size=6))
    def extend(self, values: list[int]) -> None:
        first, fits = self.records.begin(len(values))
        self.records.extend([(first + at, value, 1.0, "c", 0.0, 0.0) for at, value in enumerate(values[:fits])])
        for value in values:
            self._expect(value)

    @rule(kept=st.booleans())
    def show(self, kept: bool) -> None:
        room = self.recorder.room
        assert room.touched == ([self.records] if self.unshown else [])
        room.woken = self.asked = False
        self.woken = 0
        if self.unshown:
            assert [(row[0], row[1]) for row in self.records.unshown()] == self.unshown
        if kept:
            for records in room.touched:
                records.shown()
            room.touched.clear()
            self.unshown = []

    @rule()
    def take(self) -> None:
        batch = self.records.take()
        if not self.buffered:
            assert batch is None
            return
        assert batch is not None
        assert [(row[0], row[1]) for row in batch.rows] == self.buffered
        assert (len(batch), batch.last) == (len(self.buffered), self.buffered[-1][0])
        self.unshown = []
        self.taken.append((batch, self.buffered))
        self.buffered = []

    @rule(written=st.booleans())
    def settle(self, written: bool) -> None:
        if self.taken:
            batch, rows = self.taken.pop(0)
            if written:
                self.recorder.written(batch)
            else:
                self.recorder.lost(batch)
                self.lost += len(rows)

    @invariant()
    def counts(self) -> None:
        if hasattr(self, "recorder"):
            assert self.records.made == self.made
            assert self.recorder.room.used == self._used() <= self.most
            assert self.recorder.room.lost == self.lost
            assert len(self.records) == len(self.buffered)
            assert self.woken == self.asked, "once, until somebody looks"


TestPositions = Positions.TestCase
TestPositions.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.floats(0.05, 1.0), st.floats(0.05, 1.0))
def test_weights_undo_the_share(share: float, pace: float) -> None:
    records = Records("positions", Room(1), share)
    assert {records.draw(pace) for _ in range(200)} <= {0.0, 1 / (share * pace)}


def test_drawn_weights_add_up() -> None:
    records = Records("positions", Room(1), 0.2)
    assert sum(records.draw(0.5) for _ in range(20_000)) == pytest.approx(20_000, rel=0.1)
    assert records.made == 0, "what is not recorded has no number"


def test_values_that_are_not_the_tables_fields_are_refused() -> None:
    with pytest.raises(SchemaError, match="positions has 3 fields of its own, not 2"):
        Records("positions", Room(1)).add(0, 1.0, "c", 0.0)


def test_other_plugins_find_their_table_where_telemetry_records_it() -> None:
    class Telemetry:
        recorder = Recorder(10, {"matches": 0.0})

    plugins: list[Any] = [object(), Telemetry()]
    assert records_of(plugins, "positions") is Telemetry.recorder.tables["positions"]
    assert records_of(plugins, "matches") is None
    assert records_of([object()], "positions") is None
    with pytest.raises(SchemaError):
        records_of(plugins, "nonsense")


def test_few_records_wait_where_nothing_live_is_made_of_them() -> None:
    recorder = Recorder(10_000, {})
    tables = recorder.tables
    assert recorder.due(time.monotonic() + 1e6, 10.0) == []
    tables["drops"].add(0, 1.0, 1, "t", None, 0, 0, "dropped_qos0")
    tables["positions"].add(0, 1.0, "c", 0.0, 0.0)
    now = time.monotonic()
    assert recorder.due(now, 10.0) == [tables["drops"]]
    assert recorder.due(now + 10.0, 10.0) == [tables["drops"], tables["positions"]]
    for _ in range(FEW - 1):
        tables["positions"].add(0, 1.0, "c", 0.0, 0.0)
    assert recorder.due(now, 1e6) == [tables["drops"], tables["positions"]], "many do not wait"
    assert [rows.table for rows in recorder.take(recorder.due(now, 1e6))] == ["drops", "positions"]
    tables["positions"].add(0, 1.0, "c", 0.0, 0.0)
    assert recorder.due(time.monotonic(), 10.0) == [], "those that come later wait anew"
