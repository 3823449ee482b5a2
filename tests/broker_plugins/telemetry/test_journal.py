"""What was appended is read back, up to where a file was cut off; a file goes when its records are in segments."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.telemetry import journal as journals
from broker_plugins.telemetry.journal import Journal, JournalError, JournalName, parse_name, read

if TYPE_CHECKING:
    from pathlib import Path

VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=5)
TURNS = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["publishes", "drops"]), st.lists(st.lists(VALUES, max_size=3), min_size=1)),
        min_size=1,
        max_size=3,
    ),
    max_size=8,
)


def numbered(turns: list[list[tuple[str, list[list[Any]]]]]) -> list[list[tuple[str, list[tuple[Any, ...]]]]]:
    """Give every row of a table its sequence."""
    made = {"publishes": 0, "drops": 0}
    result = []
    for turn in turns:
        entries = []
        for table, rows in turn:
            first = made[table] + 1
            made[table] += len(rows)
            entries.append((table, [(first + at, *row) for at, row in enumerate(rows)]))
        result.append(entries)
    return result


def plain(entries: Any) -> list[tuple[str, list[list[Any]]]]:
    return [(table, [list(row) for row in rows]) for table, rows in entries]


@given(TURNS, st.data())
def test_a_file_cut_anywhere_has_every_whole_turn_before(
    tmp_path_factory: pytest.TempPathFactory, turns: Any, data: st.DataObject
) -> None:
    journal = Journal(tmp_path_factory.mktemp("spool"), "n", 7)
    turns = numbered([[("publishes", [[]])], *turns])
    ends = []
    for turn in turns:
        journal.append(turn)
        ends.append(journal.bytes)
    (path,) = journal.files
    whole = path.read_bytes()
    assert len(whole) == ends[-1]
    contents = read(path)
    assert plain(contents.entries) == plain(entry for turn in turns for entry in turn)
    assert not contents.torn
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    contents = read(path)
    kept = [turn for turn, end in zip(turns, ends, strict=True) if end <= cut]
    assert plain(contents.entries) == plain(entry for turn in kept for entry in turn)
    header = 8 + int.from_bytes(whole[:4], "little")
    assert contents.torn == (cut not in {0, header, *ends})


@given(st.binary(min_size=1, max_size=40), st.data())
def test_bytes_that_changed_end_it_there(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, data: st.DataObject
) -> None:
    journal = Journal(tmp_path_factory.mktemp("spool"), "n", 7)
    journal.append([("drops", [(1, "a")])])
    good = journal.bytes
    journal.append([("drops", [(2, "b")])])
    (path,) = journal.files
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(good, len(content) - 1))
    changed = bytes(content[:at]) + noise
    if changed == content[: len(changed)]:
        return
    path.write_bytes(changed)
    contents = read(path)
    assert plain(contents.entries)[:1] == [("drops", [[1, "a"]])]
    assert contents.torn or len(contents.entries) == 1


def test_a_file_that_is_no_journal_or_a_newer_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "VERSION", 99)
    journal = Journal(tmp_path, "n", 7)
    journal.append([("drops", [(1,)])])
    monkeypatch.undo()
    with pytest.raises(JournalError, match=r"written by version 99 .* update it"):
        read(journal.files[0])
    foreign = tmp_path / "foreign"
    foreign.write_bytes(journals._FRAME.pack(1, journals.zlib.crc32(b"\x01")) + b"\x01")
    with pytest.raises(JournalError, match="no journal"):
        read(foreign)


def test_files_go_when_all_their_records_are_in_segments(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "n", 7)
    journal.append([("drops", [(1,), (2,)]), ("totals", [(1,)])])
    (first,) = journal.files
    journal.roll()
    journal.append([("drops", [(3,)])])
    _, second = journal.files
    assert journal.settled({"drops": 2}) == []
    assert journal.settled({"drops": 3, "totals": 1}) == [first], "the last one is still written to"
    assert journal.files == [second]
    journal.roll()
    assert journal.settled({"drops": 2, "totals": 9}) == []
    assert journal.settled({"drops": 3}) == [second]
    assert journal.files == []


def test_after_a_write_that_failed_another_file_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, "n", 7)
    journal.append([("drops", [(1,)])])
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[: len(data) // 2]))
    with pytest.raises(OSError, match="bytes could be written"):
        journal.append([("drops", [(2,)])])
    monkeypatch.setattr(os, "write", write)
    journal.append([("drops", [(2,), (3,)])])
    found = [read(path) for path in journal.files]
    assert [plain(contents.entries) for contents in found] == [[("drops", [[1]])], [("drops", [[2], [3]])]]
    assert [contents.torn for contents in found] == [True, False]


def test_names_are_read_back() -> None:
    name = JournalName("a.b_c", 1_777_896_000_000_000_000, 12)
    assert parse_name(str(name)) == name
    assert parse_name("n-1.marks") is None
    assert parse_name(".n-1-000001.journal") is None
