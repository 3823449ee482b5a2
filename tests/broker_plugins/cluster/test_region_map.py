"""The map as a terminal shows it."""

from __future__ import annotations

from broker_plugins.cluster.region_map import draw
from broker_plugins.cluster.region_wire import Chart, ChartedBlock

WORLD = (0.0, 0.0, 8.0, 8.0)


def block(name: str, box: tuple[float, float, float, float], owner: str, load: float = 0.0) -> ChartedBlock:
    return ChartedBlock(name, box, owner, load)


def test_blocks_have_their_owners_letters_and_borders() -> None:
    chart = Chart(
        3,
        WORLD,
        10.0,
        [
            block("q0", (0, 0, 4, 4), "x"),
            block("q1", (4, 0, 8, 4), "y"),
            block("q2", (0, 4, 4, 8), "y"),
            block("q3", (4, 4, 8, 8), "gone"),
            block("r0", (1, 1, 3, 3), "y"),
        ],
    )
    lines = draw(chart, ["x", "y"], 16, 8).splitlines()
    assert lines[0] == "map version 3, 5 blocks; west 0 south 0 east 8 north 8"
    assert lines[1:9] == [
        "bbbbbbbb│???????",
        "bbbbbbbb│???????",
        "bbbbbbbb│???????",
        "bbbbbbbb│???????",
        "──aaaa──┼───────",
        "aa┼───│a│bbbbbbb",
        "aa│bbb│a│bbbbbbb",
        "aa────aa│bbbbbbb",
    ]
    assert lines[9:] == ["a x: 1  b y: 3"]


def test_the_busy_part_is_drawn_with_what_is_busiest() -> None:
    quiet = [block("q0", (0, 0, 4, 4), "x"), block("q1", (4, 0, 8, 4), "x"), block("q2", (0, 4, 4, 8), "x")]
    busy = [
        block("q30", (4, 4, 6, 6), "y", 9.0),
        block("q31", (6, 4, 8, 6), "x", 2.0),
        block("q32", (4, 6, 6, 8), "x"),
        block("q33", (6, 6, 8, 8), "x"),
    ]
    text = draw(Chart(9, WORLD, 10.0, quiet + busy), ["x", "y"], 12, 4)
    assert "west 4 south 4 east 8 north 8" in text
    assert "B" in text
    table = [line.split() for line in text.splitlines()[-3:]]
    assert table == [["BLOCK", "OWNER", "LOAD/S"], ["q30", "y", "9.0", "█" * 18], ["q31", "x", "2.0", "████"]]


def test_no_map_is_said() -> None:
    assert draw(Chart(0, (0, 0, 0, 0), 0.0, []), ["x"]) == "there is no map yet"
