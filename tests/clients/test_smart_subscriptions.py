"""The client library against a broker with the geo and the ranked plugin."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from clients import Box, Cell, Circle, Detect, Fence, Interval, LocusClient, Message, Near
from tests.brokers import ALLOW_ANONYMOUS, locus
from tests.mqtt_wire import wait_for

GEO = "broker_plugins.geo.plugin.GeoPlugin"
RANKED = "broker_plugins.ranked.plugin.RankedPlugin"
RANKED_OPTIONS = {"topics": {"jobs/#": {"attributes": {"age": [0, 100]}}}, "name_receivers": True}
CITY_HALL = (126.9779, 37.5663)
HARBOUR = {"type": "Polygon", "coordinates": [[[4.0, 51.9], [4.1, 51.9], [4.1, 52.0], [4.0, 52.0], [4.0, 51.9]]]}


@pytest.fixture(scope="module")
def broker():
    with locus(plugins={**ALLOW_ANONYMOUS, GEO: {}, RANKED: RANKED_OPTIONS}) as running:
        yield running


@pytest.fixture
def client(broker):
    with LocusClient(port=broker.port) as client:
        yield client


class Collected:
    """The texts of messages; `up_to` publishes a last one and waits for it, so that what is missing is not late."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, message: Message) -> None:
        self.texts.append(message.text)

    def until(self, text: str) -> list[str]:
        wait_for(lambda: text in self.texts, f"{text!r}; came: {self.texts}")
        return [one for one in self.texts if one != text]


@pytest.mark.parametrize(
    "area",
    [
        Box(126.9, 37.5, 127.0, 37.6),
        Circle(*CITY_HALL, 500),
        Cell("wydm9"),
    ],
)
def test_only_what_happens_there_comes(client, area):
    got = Collected()
    subscription = client.subscribe("alerts/#", got, area=area)
    client.publish("alerts/fire", "elsewhere", at=(2.35, 48.85))
    client.publish("alerts/fire", "no place")
    client.publish("alerts/fire", "here", at=CITY_HALL)
    assert got.until("here") == []
    subscription.cancel()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_qos(client, qos):
    got = []
    subscription = client.subscribe("q", got.append, area=Cell("wydm9"), qos=qos)
    assert subscription.granted_qos == qos
    client.publish("q", "x", at=CITY_HALL, qos=qos)
    wait_for(lambda: bool(got), "the message")
    assert [(message.text, message.qos) for message in got] == [("x", qos)]
    subscription.cancel()


def test_near_me_moves_with_me(client):
    got = Collected()
    client.subscribe("offers", got, area=Near(500))
    client.update_position(*CITY_HALL)
    client.publish("offers", "1", at=CITY_HALL)
    got.until("1")
    assert not client.update_position(CITY_HALL[0], CITY_HALL[1] + 0.0001, least_distance_m=50)
    assert client.update_position(2.35, 48.85, least_distance_m=50)
    client.publish("offers", "left behind", at=CITY_HALL)
    client.publish("offers", "2", at=(2.35, 48.85))
    assert got.until("2") == ["1"]


def test_a_subscription_moves(client):
    got = Collected()
    subscription = client.subscribe("v/1", got, area=Circle(0, 0, 1000))
    subscription.move(Circle(10, 10, 1000))
    client.publish("v/1", {"lon": 0, "lat": 0})
    client.publish("v/1", {"lon": 10, "lat": 10})
    assert got.until('{"lon":10,"lat":10}') == []


def test_a_fence_is_entered(client):
    got = Collected()
    client.publish("locus/fence/client-test", HARBOUR, qos=1, retain=True)
    client.subscribe("ships/+", got, area=Fence("client-test"), detect=Detect.ENTER)
    for text, lon in (("out", 3.9), ("in", 4.05), ("still in", 4.06), ("out again", 4.2), ("in again", 4.05)):
        client.publish("ships/1", text, at=(lon, 51.95))
    assert got.until("in again") == ["in"]
    client.publish("locus/fence/client-test", None, qos=1, retain=True)


def test_overlapping_areas_each_get_what_is_theirs(client):
    west, east = Collected(), Collected()
    client.subscribe("v/+", west, area=Box(0, 0, 20, 10))
    client.subscribe("v/+", east, area=Box(10, 0, 30, 10))
    for lon in (5, 15, 25):
        client.publish("v/1", {"lon": lon, "lat": 5})
    last = '{"lon":25,"lat":5}'
    assert east.until(last) == ['{"lon":15,"lat":5}']
    assert west.texts == ['{"lon":5,"lat":5}', '{"lon":15,"lat":5}']


def test_only_payloads_in_the_intervals_come(client):
    got = Collected()
    client.subscribe("vehicles/+", got, where={"speed": Interval(low=80, low_open=True), "engine.t": Interval(0, 95)})
    client.publish("vehicles/1", {"speed": 80, "engine": {"t": 90}})
    client.publish("vehicles/1", {"speed": 90, "engine": {"t": 99}})
    client.publish("vehicles/1", {"speed": 81, "engine": {"t": 95}})
    assert got.until('{"speed":81,"engine":{"t":95}}') == []


def test_the_best_get_it_and_the_receipt_says_so(broker, client):
    with (
        LocusClient(port=broker.port, client_id="wide") as wide,
        LocusClient(port=broker.port, client_id="narrow") as narrow,
    ):
        to_wide, to_narrow, receipts = Collected(), Collected(), Collected()
        wide.subscribe("jobs/#", to_wide, where={"age": Interval(0, 60)})
        narrow.subscribe("jobs/#", to_narrow, where={"age": Interval(20, 25)})
        client.subscribe("receipts", receipts)
        client.publish("jobs/new", {"age": 22}, top=1, reply="receipts")
        client.publish("jobs/new", {"age": 30}, top=1)
        assert to_wide.until('{"age":30}') == []
        assert to_narrow.until('{"age":22}') == []
        wait_for(lambda: bool(receipts.texts), "the receipt")
        assert "narrow" in receipts.texts[0]
        assert "wide" not in receipts.texts[0]
        json.loads(receipts.texts[0])


async def test_a_stream_of_what_is_near(broker):
    async with asyncio.timeout(10), LocusClient(port=broker.port) as client:
        await asyncio.to_thread(client.update_position, *CITY_HALL)
        async with client.messages("buses/+", area=Near(1000)) as stream:
            await asyncio.to_thread(client.publish, "buses/1", "far", at=(0, 0))
            await asyncio.to_thread(client.publish, "buses/2", "near", at=CITY_HALL)
            async for message in stream:
                assert message.text == "near"
                break


def test_many_overlapping_subscriptions_get_what_brute_force_says(broker, client):
    """Each message comes to the client once; every callback must see what its own filter wants, in order."""
    dice = random.Random(7)
    wanted, subscriptions = [], []
    for _ in range(40):
        lon, lat, low = dice.uniform(-5, 5), dice.uniform(-5, 5), dice.uniform(0, 80)
        box = Box(lon, lat, lon + dice.uniform(0.5, 5), lat + dice.uniform(0.5, 5)) if dice.random() < 0.7 else None
        speeds = Interval(low, low + dice.uniform(5, 60)) if dice.random() < 0.7 or box is None else None
        topic_filter = dice.choice(["fleet/#", "fleet/+/pos", "fleet/1/pos"])
        got = Collected()
        subscriptions.append(
            client.subscribe(topic_filter, got, area=box, where=None if speeds is None else {"speed": speeds})
        )
        wanted.append((topic_filter, box, speeds, got))
    last = Collected()
    client.subscribe("fleet-end", last)
    published = []
    for _ in range(150):
        topic = f"fleet/{dice.randrange(3)}/pos"
        payload = {"lon": dice.uniform(-6, 8), "lat": dice.uniform(-6, 8), "speed": dice.uniform(0, 120)}
        published.append((topic, payload))
        client.publish(topic, payload)
    client.publish("fleet-end", "end")
    last.until("end")
    deliveries = 0
    for topic_filter, box, speeds, got in wanted:
        expected = [
            payload
            for topic, payload in published
            if (topic_filter != "fleet/1/pos" or topic == "fleet/1/pos")
            and (box is None or (box.west <= payload["lon"] <= box.east and box.south <= payload["lat"] <= box.north))
            and (speeds is None or speeds.contains(payload["speed"]))
        ]
        assert [json.loads(text) for text in got.texts] == expected
        deliveries += len(expected)
    assert deliveries > 300
    for subscription in subscriptions:
        subscription.cancel()
