"""What a cluster tells of itself, as its plugin writes it."""

from __future__ import annotations

import json

from broker_plugins.cluster.causal_groups import STATUS_TOPIC
from broker_plugins.cluster.regions import TOPIC
from spark_jobs.dashboard.board import Board
from spark_jobs.dashboard.regions import CAUSAL_TOPIC, REGIONS_TOPIC, read_causal, read_regions
from spark_jobs.dashboard.views.cluster_view import causal_row, fact_said, node_rows

BLOCKS = [
    {"id": "0", "box": [0, 0, 10, 10], "owner": "n1", "load": 40.0},
    {"id": "1", "box": [10, 0, 20, 10], "owner": "n2", "load": 10.0},
    {"id": "2", "box": [0, 10, 10, 20], "owner": "n1", "load": 5.0},
]
MAP = {"version": 3, "bounds": [0, 0, 20, 20], "capacity": 500.0, "count": 3, "blocks": BLOCKS, "moves": 7}


def test_the_topics_are_those_of_the_cluster_plugin() -> None:
    assert (REGIONS_TOPIC, CAUSAL_TOPIC) == (TOPIC, STATUS_TOPIC)


def test_blocks_are_read_drawn_and_counted_for_their_owners() -> None:
    board = Board()
    board.take(REGIONS_TOPIC, json.dumps(MAP).encode(), 1.0)
    assert board.regions.by_owner() == {"n1": (2, 45.0), "n2": (1, 10.0)}
    assert board.regions.facts is not None
    assert board.regions.facts["moves"] == 7
    frame = board.scene.frame(0, 1.0)
    assert frame["regions"] == [["n1", 0, 0, 10, 10], ["n1", 0, 10, 10, 20], ["n2", 10, 0, 20, 10]]
    busier = {**MAP, "blocks": [{**block, "load": 99.0} for block in BLOCKS]}
    board.take(REGIONS_TOPIC, json.dumps(busier).encode(), 2.0)
    assert "regions" not in board.scene.frame(frame["revision"], 2.0), "only their loads have changed"
    rows = node_rows([], board.regions, 2.0)
    assert [[row[0], row[1], row[8], row[9]] for row in rows] == [["n1", "live", "2", "198"], ["n2", "live", "1", "99"]]
    board.take(REGIONS_TOPIC, b"", 3.0)
    assert board.scene.frame(frame["revision"], 3.0)["regions"] == []


def test_causal_groups_say_who_waits_and_for_how_long() -> None:
    group = {"filter": "game/#", "lifetime_ms": 250.0, "refused": [], "waiting": 2, "delivered": 90, "waited": 10}
    told = {**group, "waited_ms": 35, "dropped": {"late": 1, "lost": 2}}
    (found,) = read_causal(json.dumps({"slot": 1, "groups": [told, 5, {}], "clocks": {}}).encode())
    assert causal_row(found) == ["game/#", "250 ms", "2", "90", "10", "3.5 ms", "3"]
    (still,) = read_causal(json.dumps({"groups": [{"filter": "x", "lifetime_ms": 1, "refused": []}]}).encode())
    assert still.mean_wait_ms is None


def test_what_is_neither_is_passed_over() -> None:
    for strange in (b"", b"[]", b"{}", b'{"blocks": 5}', b'{"groups": 5}'):
        assert read_regions(strange) is None
        assert read_causal(strange) == []
    found = read_regions(b'{"blocks": [5, {"box": [1, 2], "owner": "n"}, {"box": [0, 0, 1, 1], "owner": 7}]}')
    assert found is not None
    assert found.blocks == ()


def test_facts_are_whole_numbers_where_they_are_whole() -> None:
    assert [fact_said(value) for value in (29.0, 0.5, "seven", {"a": 1})] == ["29", "0.5", "seven", '{"a": 1}']
