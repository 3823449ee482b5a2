"""The map's picture: bounded whatever comes, and a page that takes frames has what the scene has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spark_jobs.dashboard.scene import ALERT_S, BLOCKS_S, BLOCKS_TOPIC, MOST_ALERTS, QUIET_S, Scene


def told(scene: Scene, topic: str, content: Any, now_s: float = 0.0) -> bool:
    return scene.take(topic, json.dumps(content).encode(), now_s)


def names(frame: dict[str, Any]) -> list[str]:
    return [mover[0] for mover in frame["movers"]]


def test_the_city_is_drawn_by_its_contract() -> None:
    scene = Scene()
    streets = [[[126.9, 37.5], [127.0, 37.5]]]
    assert told(scene, "city/map", {"center": [127, 37.5], "bounds": [126, 37, 128, 38], "streets": streets})
    assert told(scene, "city/vehicles/v1/pos", {"lon": 126.95, "lat": 37.55, "speed": 3, "heading": 90})
    assert told(scene, "city/people/p1/pos", {"lon": 126.96, "lat": 37.55, "speed": 1, "heading": 0})
    assert told(scene, "city/subscribers/s1/pos", {"lon": 126.97, "lat": 37.55, "radius_m": 300})
    assert told(scene, "city/sensors/t1/temperature", {"value": 1, "lon": 126.98, "lat": 37.55})
    frame = scene.frame(0, 0.0)
    assert frame["whole"]
    assert frame["streets"] == [[(126.9, 37.5), (127.0, 37.5)]]
    assert frame["bounds"] == (126, 37, 128, 38)
    assert frame["movers"] == [
        ["vehicles/v1", "vehicle", 126.95, 37.55, 90.0, None],
        ["people/p1", "person", 126.96, 37.55, 0.0, None],
        ["subscribers/s1", "subscriber", 126.97, 37.55, None, 300.0],
        ["sensors/t1", "sensor", 126.98, 37.55, None, None],
    ]
    assert scene.counts() | {"vehicle": 1, "person": 1, "subscriber": 1, "sensor": 1} == scene.counts()


def test_a_frame_has_what_changed_since() -> None:
    scene = Scene()
    told(scene, "city/vehicles/a/pos", {"lon": 1, "lat": 1})
    told(scene, "city/vehicles/b/pos", {"lon": 2, "lat": 2})
    seen = scene.frame(0, 0.0)["revision"]
    assert scene.frame(seen, 0.0)["movers"] == []
    told(scene, "city/vehicles/b/pos", {"lon": 3, "lat": 2})
    frame = scene.frame(seen, 0.0)
    assert not frame["whole"]
    assert names(frame) == ["vehicles/b"]
    assert "streets" not in frame


def test_who_got_what_is_a_line_from_the_message_to_the_subscriber() -> None:
    scene = Scene()
    told(scene, "city/subscribers/s/pos", {"lon": 5, "lat": 5, "radius_m": 300})
    seen = scene.revision
    recent = [{"topic": "city/vehicles/a/pos", "lon": 5.001, "lat": 5}, {"topic": "x"}, 7]
    told(scene, "city/subscribers/s/received", {"received": 1, "recent": recent})
    told(scene, "city/subscribers/unknown/received", {"received": 1, "recent": recent})
    assert scene.frame(seen, 0.0)["deliveries"] == [[5.001, 5, 5, 5]]
    assert scene.deliveries == 2


def test_a_handover_is_shown_where_the_client_is() -> None:
    scene = Scene()
    told(scene, "city/subscribers/s7/pos", {"lon": 5, "lat": 6, "radius_m": 300})
    seen = scene.revision
    scene.hand_over("city-subscriber-s7", "node1 → node2")
    scene.hand_over("somebody", "node1 → node2")
    frame = scene.frame(seen, 0.0)
    assert frame["handovers"] == [[5, 6, "node1 → node2"]]
    assert scene.frame(frame["revision"], 0.0)["handovers"] == []


def test_who_falls_silent_or_leaves_is_taken_off_but_sensors_stay() -> None:
    scene = Scene()
    told(scene, "city/sensors/t/x", {"lon": 1, "lat": 1}, 0.0)
    told(scene, "city/vehicles/a/pos", {"lon": 1, "lat": 1}, 0.0)
    told(scene, "city/vehicles/b/pos", {"lon": 1, "lat": 1}, 50.0)
    told(scene, "city/subscribers/s/pos", {"lon": 1, "lat": 1}, 50.0)
    seen = scene.revision
    told(scene, "city/subscribers/s", {"online": False}, 51.0)
    assert sorted(scene.frame(seen, QUIET_S + 1)["gone"]) == ["subscribers/s", "vehicles/a"]
    assert names(scene.frame(0, QUIET_S + 1)) == ["sensors/t", "vehicles/b"]


def test_without_a_city_the_picture_grows_to_any_message_with_a_place() -> None:
    scene = Scene()
    assert scene.middle is None
    assert told(scene, "fleet/7", {"longitude": 10.0, "latitude": 50.0})
    assert told(scene, "fleet/8", {"type": "Point", "coordinates": [12.0, 52.0]})
    assert not told(scene, "fleet/9", {"speed": 3})
    assert scene.frame(0, 0.0)["bounds"] == (10.0, 50.0, 12.0, 52.0)
    assert scene.middle == (11.0, 51.0)


def test_fences_come_change_and_go() -> None:
    scene = Scene()
    ring = [[0, 0], [1, 0], [1, 1], [0, 0]]
    told(scene, "locus/fence/a", {"type": "Polygon", "coordinates": [ring]})
    told(scene, "locus/fence/b", {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}})
    assert scene.fences == ["a", "b"]
    seen = scene.revision
    scene.take("locus/fence/a", b"", 0.0)
    assert [name for name, _ in scene.frame(seen, 0.0)["fences"]] == ["b"]
    assert scene.fence("a") is None


def test_blocks_are_drawn_while_they_are_told() -> None:
    scene = Scene()
    blocks = [["R", 0, 0, 1, 1, 3], ["Q", 1, 1, 2, 2, 1], ["X", 0, 0, 0, 0, 0], "?", ["R", "a", 0, 1, 1, 2]]
    told(scene, BLOCKS_TOPIC, {"areas": 4, "indexes": 1, "left_out": 0, "blocks": blocks}, 0.0)
    assert scene.frame(0, 0.0)["blocks"] == [["R", 0, 0, 1, 1, 3], ["Q", 1, 1, 2, 2, 1]]
    assert scene.index["areas"] == 4
    seen = scene.revision
    told(scene, BLOCKS_TOPIC, {"areas": 4, "indexes": 1, "left_out": 0, "blocks": blocks}, 5.0)
    assert "blocks" not in scene.frame(seen, 5.0)
    assert scene.frame(seen, 6.0 + BLOCKS_S)["blocks"] == []


def test_alerts_fade_and_are_bounded() -> None:
    scene = Scene()
    for number in range(MOST_ALERTS + 10):
        told(scene, "city/alerts/fire", {"text": f"{number}", "lon": 1, "lat": 1}, float(number))
    assert len(scene.alerts()) == MOST_ALERTS
    assert scene.alerts()[0].text == f"{MOST_ALERTS + 9}"
    assert scene.frame(0, MOST_ALERTS + 10 + ALERT_S)["alerts"] == []


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"[1]",
        b'{"lon": "1", "lat": 2}',
        b'{"lon": NaN, "lat": 2}',
        b'{"lon": true, "lat": 2}',
        b"[" * 5000,
    ],
)
@pytest.mark.parametrize("topic", ["city/map", "city/vehicles/a/pos", "city/subscribers/s/received", "x", BLOCKS_TOPIC])
def test_what_anybody_publishes_never_breaks_the_map(topic: str, payload: bytes) -> None:
    scene = Scene()
    scene.take(topic, payload, 0.0)
    assert scene.frame(0, 0.0)["movers"] == []


FIELDS = ["lon", "lat", "streets", "bounds", "recent", "blocks", "type", "coordinates", "geometry", "online", "heading"]
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=12,
)
TOPICS = ["city/map", "city/vehicles/a/pos", "city/subscribers/s/received", "city/subscribers/s", "city/alerts/x"]


@given(st.lists(st.tuples(st.sampled_from([*TOPICS, "locus/fence/a", BLOCKS_TOPIC, "other/x"]), JSON), max_size=8))
@settings(max_examples=150, deadline=None)
def test_any_json_leaves_a_frame_that_can_be_sent(messages: list[tuple[str, Any]]) -> None:
    scene = Scene()
    for topic, content in messages:
        scene.take(topic, json.dumps(content).encode(), 0.0)
    json.dumps(scene.frame(0, 0.0), allow_nan=False)


class Pages(RuleBasedStateMachine):
    """A page that takes every frame, one that sleeps for long, and what both should have."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene(most_movers=5)
        self.now_s = 0.0
        self.page: dict[str, list[Any]] = {}
        self.seen = 0

    @rule(number=st.integers(0, 9), lon=st.integers(-9, 9))
    def move(self, number: int, lon: int) -> None:
        told(self.scene, f"city/vehicles/{number}/pos", {"lon": lon, "lat": 0}, self.now_s)

    @rule(seconds=st.sampled_from([1.0, 30.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def show(self) -> None:
        frame = self.scene.frame(self.seen, self.now_s)
        if frame["whole"]:
            self.page.clear()
        for key in frame["gone"]:
            self.page.pop(key, None)
        for mover in frame["movers"]:
            self.page[mover[0]] = mover
        self.seen = frame["revision"]
        assert self.page == {mover[0]: mover for mover in self.scene.frame(0, self.now_s)["movers"]}

    @invariant()
    def bounded(self) -> None:
        assert self.scene.counts()["vehicle"] <= 5


TestPages = Pages.TestCase
TestPages.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
