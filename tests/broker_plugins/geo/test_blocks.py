"""The picture of the index: told on request only, bounded, and true."""

from __future__ import annotations

import json

import pytest

from broker_plugins.geo.blocks import BLOCKS_TOPIC, picture
from broker_plugins.geo.options import GeoOptions
from broker_plugins.geo.spots import FEW, Group
from broker_plugins.places import BadRuleError
from spatial_index import WGS84, Box
from tests.broker_plugins.smart import plugins
from tests.brokers import locus
from tests.mqtt_wire import Kind, connect, publish


def group_of(spots: int, moving: int = 0) -> Group:
    group = Group("t/#", WGS84)
    for number in range(spots + moving):
        west = -170.0 + number
        group.place(group.spot(number), Box(west, 10.0, west + 0.5, 10.5), moving=number >= spots)
    return group


def test_few_areas_are_counted_and_have_no_blocks() -> None:
    assert picture([group_of(FEW)], 100) == {"areas": FEW, "indexes": 0, "left_out": 0, "blocks": []}


def test_every_area_is_in_a_block_that_is_drawn() -> None:
    drawn = picture([group_of(FEW + 5, moving=10)], 1_000)
    assert (drawn["areas"], drawn["indexes"], drawn["left_out"]) == (FEW + 15, 1, 0)
    assert {block[0] for block in drawn["blocks"]} == {"Q", "R"}
    for number in range(FEW + 15):
        x, y = -169.75 + number, 10.25
        assert any(w <= x <= e and s <= y <= n for _, w, s, e, n, _ in drawn["blocks"])


def test_a_picture_is_bounded_and_says_what_it_leaves_out() -> None:
    drawn = picture([group_of(FEW + 5, moving=10), group_of(FEW + 1)], 3)
    assert len(drawn["blocks"]) == 3
    assert drawn["left_out"] == 2


def test_a_broker_tells_only_whoever_subscribes_and_only_when_it_is_asked_to() -> None:
    with locus(plugins=plugins({"blocks_interval_s": 0.1})) as broker, connect(broker.port, "areas") as areas:
        filters = [(f"$geo/bbox:{n},1,{n + 0.5},2/cars/#", 0) for n in range(FEW + 4)]
        assert set(areas.subscribe(*filters)) == {0}
        with connect(broker.port, "map") as page:
            page.subscribe((BLOCKS_TOPIC, 0))
            told = page.expect(Kind.PUBLISH)
            assert told.topic == BLOCKS_TOPIC
            assert not told.retain
            content = json.loads(told.payload)
            assert (content["areas"], content["indexes"]) == (FEW + 4, 1)
            assert sum(block[5] for block in content["blocks"]) >= FEW + 4
            again = page.expect(Kind.PUBLISH)
            assert json.loads(again.payload) == content
        areas.send(publish("cars/1/@at:0.2,1.5", b"x"))
        assert areas.expect(Kind.PUBLISH).payload == b"x"


def test_a_broker_tells_nobody_where_subscribers_are_unless_its_operator_wants_it() -> None:
    assert GeoOptions().blocks_interval_s == 0
    for too_short in (0.01, -1.0):
        with pytest.raises(BadRuleError, match="blocks_interval_s"):
            GeoOptions(blocks_interval_s=too_short)
