"""What a killed broker left becomes segments, every record once; what is nowhere is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.telemetry import journal as journals
from broker_plugins.telemetry.journal import DIRECTORY, Journal
from broker_plugins.telemetry.leftovers import Loss, Recovered, recover
from broker_plugins.telemetry.marks import Marks
from broker_plugins.telemetry.spool import Rows, Spool

if TYPE_CHECKING:
    from pathlib import Path

NOON = 1_777_896_000_000_000


def positions(first: int, last: int, at: int = NOON) -> list[tuple[int, int, float, str, float, float]]:
    return [(number, at + number, 1.0, "c", number / 2, 0.0) for number in range(first, last + 1)]


def sequences(spool: Path, run: int) -> list[int]:
    if not (spool / "table=positions").exists():
        return []
    table = ds.dataset(spool / "table=positions", partitioning="hive").to_table()
    return sorted(row["sequence"] for row in table.to_pylist() if row["incarnation"] == run)


def recovered(spool: Path, run: int = 9) -> Recovered:
    found = Recovered()
    recover(spool, "n", run, found)
    return found


@settings(max_examples=40, deadline=None)
@given(
    turns=st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()), min_size=1, max_size=8),
    written=st.integers(0, 40),
    marked=st.booleans(),
    lost=st.integers(0, 3),
)
def test_every_record_is_in_one_segment_and_what_is_missing_is_told(
    tmp_path_factory: pytest.TempPathFactory,
    turns: list[tuple[int, bool, bool]],
    written: int,
    marked: bool,
    lost: int,
) -> None:
    spool = tmp_path_factory.mktemp("spool")
    journal, marks = Journal(spool, "n", 1), Marks(spool, "n", 1)
    made, kept, missing = 0, [], set()
    for count, journalled, rolled in turns:
        if journalled:
            journal.append([("positions", positions(made + 1, made + count))])
            kept += range(made + 1, made + count + 1)
        else:
            missing |= set(range(made + 1, made + count + 1))
        made += count
        if rolled:
            journal.roll()
    made += lost
    missing |= set(range(made - lost + 1, made + 1))
    marks.made("positions", made)
    written = min(written, made)  # all up to here were written as segments, journalled or not
    if written:
        Spool(spool, "n", 1).write_rows(Rows("positions", positions(1, written)))
        missing -= set(range(1, written + 1))
        if marked:
            marks.written("positions", written)
    marks.release()
    journal.roll()
    found = recovered(spool)
    assert sequences(spool, 1) == sorted(set(kept) | set(range(1, written + 1)))
    assert found.records == len([number for number in kept if number > written])
    told = [number for loss in found.losses for number in range(loss.first, loss.last + 1)]
    assert sorted(told) == sorted(missing)
    assert {(loss.incarnation, loss.table) for loss in found.losses} <= {(1, "positions")}
    assert list((spool / DIRECTORY).iterdir()) == []
    assert recovered(spool) == Recovered(), "once"


def test_what_was_written_and_removed_since_is_not_written_again(tmp_path: Path) -> None:
    journal, marks = Journal(tmp_path, "n", 1), Marks(tmp_path, "n", 1)
    journal.append([("positions", positions(1, 5))])
    marks.written("positions", 3)  # its segment was too old, and is gone
    marks.release()
    assert recovered(tmp_path).records == 2
    assert sequences(tmp_path, 1) == [4, 5]


def test_a_broker_that_runs_and_other_nodes_are_left_alone(tmp_path: Path) -> None:
    running, marks = Journal(tmp_path, "n", 1), Marks(tmp_path, "n", 1)
    running.append([("positions", positions(1, 2))])
    other = Journal(tmp_path, "other", 1)
    other.append([("positions", positions(1, 2))])
    mine = Journal(tmp_path, "n", 9)
    mine.append([("positions", positions(1, 2))])
    assert recovered(tmp_path, 9) == Recovered()
    assert all(path.exists() for path in (*running.files, *other.files, *mine.files))
    marks.release()
    assert recovered(tmp_path, 9).records == 2
    assert sequences(tmp_path, 1) == [1, 2]


def test_a_torn_end_is_cut_off_and_counted(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "n", 1)
    journal.append([("positions", positions(1, 2))])
    journal.append([("positions", positions(3, 4))])
    (path,) = journal.files
    path.write_bytes(path.read_bytes()[:-1])
    found = recovered(tmp_path)
    assert (found.records, found.torn) == (2, 1)
    assert sequences(tmp_path, 1) == [1, 2]


def test_a_journal_nobody_can_read_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "VERSION", 99)
    journal = Journal(tmp_path, "n", 1)
    journal.append([("positions", positions(1, 2))])
    monkeypatch.undo()
    assert recovered(tmp_path).records == 0
    assert journal.files[0].exists()


def test_a_disk_that_fails_keeps_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, "n", 1)
    journal.append([("positions", positions(1, 2))])
    (tmp_path / "table=positions").write_text("in the way")
    with pytest.raises(OSError, match="table=positions"):
        recovered(tmp_path)
    (tmp_path / "table=positions").unlink()
    assert recovered(tmp_path).records == 2
    assert sequences(tmp_path, 1) == [1, 2]


def test_records_no_segment_can_hold_are_lost_and_do_not_keep_others(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "n", 1)
    journal.append([("positions", [(1, NOON, 1.0, "c", "no number", 0.0)])])
    journal.roll()
    journal.append([("positions", positions(2, 3))])
    found = recovered(tmp_path)
    assert found.losses == [Loss(1, "positions", 1, 1)]
    assert sequences(tmp_path, 1) == [2, 3]


def test_what_an_older_broker_left_has_nulls_for_younger_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dataclasses

    from broker_plugins.telemetry import schema

    journal = Journal(tmp_path, "n", 1)
    journal.append([("positions", positions(1, 1))])
    known = schema.TABLES["positions"]
    colour = schema.Field("colour", schema.Kind.STRING, "Of the client.", since=schema.VERSION + 1)
    monkeypatch.setitem(schema.TABLES, "positions", dataclasses.replace(known, own=(*known.own, colour)))
    assert recovered(tmp_path).records == 1
    (row,) = ds.dataset(tmp_path / "table=positions", partitioning="hive").to_table().to_pylist()
    assert (row["sequence"], row["colour"]) == (1, None)
