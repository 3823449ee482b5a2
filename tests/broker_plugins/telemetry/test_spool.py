"""Segments: what goes in comes out, in its hour, whole or not at all; what is too old or too much goes."""

from __future__ import annotations

import itertools
import os
import sys
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.telemetry import TABLES, Kind, Segment, hour_of, parse_segment
from broker_plugins.telemetry.spool import HOUR_US, Batch, Spool, SpoolError, by_hour

if TYPE_CHECKING:
    from pathlib import Path

NOON = 1_777_896_000_000_000  # 2026-05-04T12:00:00Z
VALUES: dict[Kind, Any] = {
    Kind.STRING: "ü/x",
    Kind.INT: 2,
    Kind.LONG: 1 << 40,
    Kind.DOUBLE: 0.25,
    Kind.BOOLEAN: True,
    Kind.TIME: NOON,
}


def batch_of(name: str, at: list[int], first: int = 1) -> Batch:
    columns = {field.name: [VALUES[field.kind]] * len(at) for field in TABLES[name].fields[2:]}
    return Batch(name, {**columns, "at": at, "sequence": list(range(first, first + len(at)))})


@given(st.lists(st.integers(0, 5 * HOUR_US)))
def test_runs_cover_all_times_and_stay_in_their_hour(times: list[int]) -> None:
    runs = list(by_hour(times))
    assert [number for start, end in runs for number in range(start, end)] == list(range(len(times)))
    assert all(len({at // HOUR_US for at in times[start:end]}) == 1 for start, end in runs)
    for (_, end), (start, _) in itertools.pairwise(runs):
        assert end == start
        assert times[end - 1] // HOUR_US != times[start] // HOUR_US


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_read_back_as_it_was_written(name: str, tmp_path: Path) -> None:
    spool = Spool(tmp_path, "n1", 7)
    batch = batch_of(name, [NOON, NOON + 1], first=11)
    (path,) = spool.write(batch)
    assert path == tmp_path / f"table={name}" / "hour=2026-05-04T12" / "n1-7-000000000011-000000000012-v2.parquet"
    file = pq.ParquetFile(path)
    assert [field.name for field in file.schema_arrow] == [field.name for field in TABLES[name].fields]
    assert [field.nullable for field in file.schema_arrow] == [field.nullable for field in TABLES[name].fields]
    rows = file.read().to_pydict()
    assert rows["node"] == ["n1", "n1"]
    assert rows["incarnation"] == [7, 7]
    assert [round(at.timestamp() * 1e6) for at in rows["at"]] == [NOON, NOON + 1]
    for field in TABLES[name].fields[4:]:
        if field.kind is not Kind.TIME:
            assert rows[field.name] == list(batch.columns[field.name])
    assert file.schema_arrow.metadata[b"locus.first"] == b"11"
    assert file.schema_arrow.metadata[b"locus.schema"] == b"2"


def test_an_hour_that_ends_inside_a_batch_cuts_it(tmp_path: Path) -> None:
    at = [NOON - 2, NOON - 1, NOON, NOON + HOUR_US, NOON + 5]
    paths = Spool(tmp_path, "n", 1).write(batch_of("positions", at))
    assert [path.parent.name for path in paths] == [f"hour={hour_of(each)}" for each in (at[0], at[2], at[3], at[4])]
    assert [(parse_segment(path.name).first, parse_segment(path.name).last) for path in paths] == [
        (1, 2),
        (3, 3),
        (4, 4),
        (5, 5),
    ]
    table = ds.dataset(tmp_path / "table=positions", partitioning="hive").to_table().sort_by("sequence")
    assert table["sequence"].to_pylist() == [1, 2, 3, 4, 5]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path, "n", 1)

    def full(table: Any, path: Path, **options: Any) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spool._pq, "write_table", full)
    with pytest.raises(OSError, match="No space"):
        spool.write(batch_of("positions", [NOON]))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_null_where_none_may_be_is_no_segment(tmp_path: Path) -> None:
    batch = batch_of("positions", [NOON])
    with pytest.raises(Exception, match="lon"):
        Spool(tmp_path, "n", 1).write(Batch("positions", {**batch.columns, "lon": [None]}))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def _age(path: Path, now_s: float, age_s: float) -> None:
    os.utime(path, (now_s - age_s, now_s - age_s))


def test_what_is_too_old_goes_then_the_oldest_while_there_is_too_much(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "n", 1)
    now_s = NOON / 1e6 + 7_200
    paths = [spool.write(batch_of("positions", [NOON + number * 1_000_000], number))[0] for number in range(1, 6)]
    for number, path in enumerate(paths):
        _age(path, now_s, 100 - number)
    (foreign,) = Spool(tmp_path, "other", 1).write(batch_of("positions", [NOON]))
    _age(foreign, now_s, 1e6)
    size = paths[0].stat().st_size
    assert spool.retain(now_s, 98.5, 10**9) == (2, sum(path.stat().st_size for path in paths[2:]))
    assert [path.exists() for path in paths] == [False, False, True, True, True]
    removed, left = spool.retain(now_s, 1e6, size * 2)
    assert removed == 1
    assert left <= size * 2
    assert [path.exists() for path in paths] == [False, False, False, True, True]
    assert foreign.exists(), "another node's segments are its own business"


def test_hours_that_are_empty_and_leftovers_of_a_crash_are_cleared_away(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "n", 1)
    now_s = NOON / 1e6 + 7_200
    (path,) = spool.write(batch_of("positions", [NOON]))
    _age(path, now_s, 50)
    torn, fresh = (path.parent.parent / f"hour=2026-05-04T{hour}" / f".{path.name}" for hour in (12, 14))
    fresh.parent.mkdir()
    for hidden, age in ((torn, 4_000), (fresh, 1)):
        hidden.write_bytes(b"half")
        _age(hidden, now_s, age)
    spool.retain(now_s, 10, 10**9)
    assert not path.parent.exists()
    assert fresh.exists()


def test_without_pyarrow_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SpoolError, match=r"pip install 'locus-mqtt\[telemetry\]'"):
        Spool(tmp_path, "n", 1)


def test_a_node_leaves_alone_what_one_of_a_longer_name_writes(tmp_path: Path) -> None:
    directory = tmp_path / "table=publishes" / "hour=2026-05-04T09"
    directory.mkdir(parents=True)
    mine, other = (directory / f".{Segment(node, 1, 1, 1).name}" for node in ("a", "a-1"))
    for path in (mine, other):
        path.write_bytes(b"half")
        os.utime(path, (0, 0))
    Spool(tmp_path, "a", 2).retain(1e9, 1e9, 1 << 30)
    assert not mine.exists()
    assert other.exists()
