from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_policy import GapStatistics, GapTable, TimeWentBackError
from rl_policy.gaps import RECENT, SHORTEST_GAP_S, WINDOW

gap_lists = st.lists(st.floats(0.0, 1000.0), max_size=3 * WINDOW)


def watched(gaps: list[float]) -> tuple[GapStatistics, list[float]]:
    """Statistics of publishes with these gaps, and the gaps as the clock shows them."""
    known, now, seen = GapStatistics(), 0.0, []
    known.published(now)
    for gap in gaps:
        seen.append(max(now + gap - now, SHORTEST_GAP_S))
        now += gap
        known.published(now)
    return known, seen


@given(gap_lists)
def test_it_remembers_the_last_gaps_as_a_list_would(gaps) -> None:
    known, seen = watched(gaps)
    kept = seen[-WINDOW:]
    assert len(known) == len(kept)
    assert list(known.sorted()) == sorted(kept)
    assert known.recent() == sorted(kept[-RECENT:])
    assert known.last_s == (kept[-1] if kept else None)
    assert known.sum_s == pytest.approx(sum(kept), abs=1e-6)
    if kept:
        assert known.mean_s == pytest.approx(statistics.fmean(kept), abs=1e-6)
    if len(kept) > 1 and statistics.fmean(kept) > 1.0:
        assert known.variation == pytest.approx(statistics.pstdev(kept) / statistics.fmean(kept), abs=1e-4)


def test_an_interruption_is_no_gap() -> None:
    known = GapStatistics()
    known.published(1.0)
    known.interrupted()
    assert known.age_s(50.0) is None
    known.published(100.0)
    assert len(known) == 0
    assert known.age_s(103.0) == 3.0


def test_time_does_not_go_back() -> None:
    known = GapStatistics()
    known.published(5.0)
    with pytest.raises(TimeWentBackError, match="monotonic"):
        known.published(4.0)
    with pytest.raises(TimeWentBackError, match="monotonic"):
        known.age_s(4.0)


def test_the_table_forgets_the_topic_longest_without_a_publish() -> None:
    table = GapTable(max_topics=2)
    table.published("a", 0.0)
    table.published("b", 1.0)
    table.published("a", 2.0)
    table.published("c", 3.0)
    assert ("a" in table, "b" in table, "c" in table) == (True, False, True)
    assert (len(table), table.evicted) == (2, 1)
    kept = table.get("a")
    assert kept is not None
    assert list(kept.sorted()) == [2.0]


def test_a_cleared_topic_starts_anew_and_a_restart_interrupts_all() -> None:
    table = GapTable()
    table.published("a", 0.0)
    table.published("b", 0.0)
    table.cleared("a")
    table.interrupted()
    assert table.get("a") is None
    known = table.get("b")
    assert known is not None
    assert known.last_publish_s is None


def test_a_table_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        GapTable(0)
