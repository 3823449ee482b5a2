from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.ledger import Coverage, Ledger, LedgerError, read_ledger, write_ledger

if TYPE_CHECKING:
    from pathlib import Path

spans = st.tuples(st.integers(1, 60), st.integers(0, 15)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@settings(max_examples=200, deadline=None)
@given(st.lists(spans, max_size=20), spans)
def test_coverage_is_a_set_of_numbers(added: list[tuple[int, int]], asked: tuple[int, int]) -> None:
    coverage, numbers = Coverage(), set()
    for first, last in added:
        coverage.add(first, last)
        numbers |= set(range(first, last + 1))
    covered = [n for first, last in coverage.intervals for n in range(first, last + 1)]
    assert covered == sorted(numbers)
    assert coverage.size == len(numbers)
    assert coverage.missing() == max(numbers, default=0) - len(numbers)
    missing = [n for first, last in coverage.uncovered(*asked) for n in range(first, last + 1)]
    assert missing == [n for n in range(asked[0], asked[1] + 1) if n not in numbers]
    gaps = zip(coverage.intervals, coverage.intervals[1:], strict=False)
    assert all(right[0] - left[1] > 1 for left, right in gaps), "touching intervals are one"
    assert Coverage(coverage.intervals).intervals == coverage.intervals


def test_a_ledger_survives_the_disk(tmp_path: Path) -> None:
    ledger = Ledger(commit=3, query="q", batch=2, covered={"drops": {"n/1": [(1, 5), (7, 9)]}}, latest_us={"n": 5})
    write_ledger(tmp_path / "deep" / "ledger.json", ledger)
    assert read_ledger(tmp_path / "deep" / "ledger.json") == ledger
    assert ledger.missing() == 1
    assert ledger.watermark_us == 5
    assert read_ledger(tmp_path / "none.json") == Ledger()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["ledger.json"]


def test_a_damaged_ledger_is_named(tmp_path: Path) -> None:
    (tmp_path / "ledger.json").write_text("{")
    with pytest.raises(LedgerError, match=r"ledger\.json is no ledger"):
        read_ledger(tmp_path / "ledger.json")
