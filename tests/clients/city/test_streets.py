from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from clients.city.plane import Plane, Point
from clients.city.streets import BLOCK_M, LINES, PUSH, Streets

seeds = st.integers(min_value=0, max_value=2**31)


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_every_crossing_can_be_reached_from_every_other(seed):
    streets = Streets(seed)
    reached, border = {0}, [0]
    while border:
        crossing = border.pop()
        for stretch in streets.exits[crossing]:
            other = stretch.other(crossing)
            if other not in reached:
                reached.add(other)
                border.append(other)
    assert len(reached) == len(streets.crossings) == LINES * LINES


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_the_lines_to_draw_are_the_streets(seed):
    streets = Streets(seed)
    drawn = {pair for line in streets.lines() for pair in pairwise(line)}
    there = {(streets.crossings[s.start], streets.crossings[s.end]) for s in streets.stretches}
    assert drawn == there


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_streets_have_the_lengths_that_they_are_drawn_with(seed):
    streets = Streets(seed)
    for stretch in streets.stretches:
        start, end = streets.crossings[stretch.start], streets.crossings[stretch.end]
        assert stretch.length_m == start.distance_to(end)
        assert (1 - 2 * PUSH) * BLOCK_M <= stretch.length_m <= (1 + 4 * PUSH) * BLOCK_M
        assert streets.at(stretch, stretch.start, 0.0) == start
        assert streets.at(stretch, stretch.end, 0.0) == end


def test_a_seed_makes_one_city():
    assert Streets(4).crossings == Streets(4).crossings
    assert Streets(4).stretches == Streets(4).stretches
    assert Streets(4).crossings != Streets(5).crossings


@settings(max_examples=100, deadline=None)
@given(st.floats(-3000, 3000), st.floats(-3000, 3000))
def test_the_globe_and_the_plane_agree(x, y):
    plane = Plane(126.97, 37.56)
    back = plane.point(*plane.globe(Point(x, y)))
    assert back.distance_to(Point(x, y)) < 0.1


def test_headings_are_those_of_a_compass():
    here = Point(0.0, 0.0)
    assert [round(here.heading_to(Point(x, y))) for x, y in ((0, 1), (1, 0), (0, -1), (-1, 0))] == [0, 90, 180, 270]
