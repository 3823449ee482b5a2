from __future__ import annotations

from random import Random

from benchmarks.reproduction.printed_skip_list import PrintedSkipList, SortedSkipList, printed_add_markers
from spatial_index import Interval
from spatial_index.interval_skip_list import Marker


def marker(order: int, width: float) -> Marker:
    return Marker(width, order, order, Interval(0, width))


def test_the_printed_insertion_looks_at_the_first_marker_only():
    markers: list[Marker] = []
    for order, width in enumerate([1.0, 3.0, 2.0, 5.0]):
        printed_add_markers(markers, marker(order, width))
    assert [one.width for one in markers] == [1.0, 5.0, 2.0, 3.0]


def test_the_printed_search_carries_its_position_over_and_reads_past_the_end():
    skip_list = SortedSkipList([(0, Interval(0, 10)), (1, Interval(1, 9))])
    found = skip_list.printed_find_markers(5.0, 100)
    assert None in found
    assert len([one for one in found if one is not None]) < 3


def test_the_printed_search_never_reads_what_is_marked_at_an_equal_key():
    skip_list = SortedSkipList([(0, Interval(5, 5)), (1, Interval(0, 1))])
    assert [one.identity for one in skip_list.lowest_level_first(5.0, 1)] == [0]
    assert 0 not in [one.identity for one in skip_list.printed_find_markers(5.0, 100) if one is not None]


def test_the_lowest_level_first_gives_all_matches_in_a_wrong_order():
    random = Random(1)
    held = [Interval(low, low + random.uniform(1, 50)) for low in (random.uniform(0, 100) for _ in range(200))]
    skip_list = SortedSkipList(enumerate(held))
    found = skip_list.lowest_level_first(50.0, 200)
    assert {one.identity for one in found} == {number for number, interval in enumerate(held) if 50.0 in interval}
    assert found != sorted(found)


def test_the_printed_list_holds_the_same_markers_through_node_changes():
    random = Random(2)
    held = [Interval(low, low + random.uniform(1, 50)) for low in (random.uniform(0, 100) for _ in range(100))]
    printed, mended = PrintedSkipList(enumerate(held)), SortedSkipList(enumerate(held))
    for number in range(0, 100, 3):
        printed.remove(number)
        mended.remove(number)
    edges = zip(printed.edges(), mended.edges(), strict=True)
    assert all(sorted(one) == other for (_, one), (_, other) in edges)
