"""Addresses, fences, and a connection that comes back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.dashboard.feed import Address, BadBrokerError, Feed, read_address
from spark_jobs.dashboard.fence_watch import (
    MOST_WATCHED,
    BadFenceError,
    FenceWatch,
    Watched,
    check_name,
    fence_payload,
    square,
)
from tests.broker_plugins.smart import plugins
from tests.brokers import free_port, locus
from tests.mqtt_wire import connect, publish, wait_for

if TYPE_CHECKING:
    from pathlib import Path


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCUS_PASSWORD", "from the environment")
    assert read_address("broker") == Address("broker", 1883)
    assert read_address("broker:1884") == Address("broker", 1884)
    assert read_address("mqtts://broker") == Address("broker", 8883, tls=True)
    assert read_address("mqtt://me@broker").password == "from the environment"
    with_password = read_address("mqtt://me:a%20b@broker:99")
    assert (with_password.username, with_password.password, with_password.shown) == ("me", "a b", "broker:99")
    for wrong in ("", "http://broker", "broker:x", "mqtt://", "broker:1883/path"):
        with pytest.raises(BadBrokerError, match="give HOST:PORT"):
            read_address(wrong)


def test_a_fence_is_a_closed_ring_that_the_broker_can_read() -> None:
    payload = json.loads(fence_payload([(0, 0), (1, 0), (1, 1)]))
    assert payload == {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
    assert json.loads(fence_payload([(0, 0), (1, 0), (1, 1), (0, 0)])) == payload
    for bad in (
        [],
        [(0, 0), (1, 1)],
        [(0, 0), (0, 0), (1, 1)],
        [(0, 0), (1, 0), (float("nan"), 1)],
        [(i, i) for i in range(300)],
    ):
        with pytest.raises(BadFenceError):
            fence_payload(bad)
    west, south = square(10, 60, 1_000)[0]
    assert 60 - south == pytest.approx(0.00449, rel=0.01)
    assert 10 - west == pytest.approx(2 * (60 - south), rel=0.01), "a degree is half as long at 60 degrees"
    for lon, lat, size in ((200, 0, 10), (0, 90, 10), (0, 0, 0), (0, 0, float("nan"))):
        with pytest.raises(BadFenceError):
            square(lon, lat, size)
    assert check_name("a-1.b_2") == "a-1.b_2"
    for bad in ("", "a/b", "+", "#", "a b", "x" * 65, "-a"):
        with pytest.raises(BadFenceError):
            check_name(bad)


def test_the_fence_watched_longest_makes_room() -> None:
    started, stopped = [], []

    class Still(Watched):
        def __init__(self, name: str, inner: str, address: Address) -> None:
            super().__init__(name, inner, address)
            self.feed.start = lambda: started.append(name)  # type: ignore[method-assign]
            self.feed.stop = lambda: stopped.append(name)  # type: ignore[method-assign]

    watch = FenceWatch(Address("nowhere", 1), "city/#", Still)
    for number in range(MOST_WATCHED + 1):
        watch.watch(f"f{number}")
    watch.watch("f3")
    assert len(watch.all()) == MOST_WATCHED
    assert started == [f"f{number}" for number in range(MOST_WATCHED + 1)]
    wait_for(lambda: stopped == ["f0"], "the first to be left", 60)
    assert watch.all()[0].filter == f"$geo/fence:f{MOST_WATCHED}/city/#"


def test_a_feed_says_when_the_broker_is_away_and_comes_back(tmp_path: Path) -> None:
    port, heard = free_port(), []

    def take(topic: str, payload: bytes, _now_s: float, _retained: bool) -> None:
        heard.append((topic, payload))

    feed = Feed(Address("127.0.0.1", port), ["a/#", "$geo/nonsense/b"], take)
    feed.start()
    try:
        wait_for(lambda: "no answer" in feed.link.reason, "the first attempt to fail", 60)
        assert not feed.publish("a/x", b"1")
        for times in (1, 2):
            with locus(plugins=plugins(), port=port, directory=tmp_path) as broker:
                wait_for(lambda times=times: feed.link.connections == times, "a connection", 60)
                wait_for(lambda: feed.refused == ("$geo/nonsense/b",), "the refusal", 60)
                with connect(port, "sender") as sender:
                    sender.send(publish(f"a/{times}", b"x"))
                    wait_for(lambda times=times: (f"a/{times}", b"x") in heard, "a message", 60)
                assert feed.publish("a/own", b"2")
                since_s = feed.link.since_s
                broker.kill()
                wait_for(lambda: not feed.link.connected, "the loss", 60)
                assert feed.link.since_s > since_s
    finally:
        feed.stop()


def test_a_watched_fence_hears_what_happens_inside() -> None:
    with locus(plugins=plugins()) as broker, connect(broker.port, "sender") as sender:
        watched: Any = FenceWatch(Address("127.0.0.1", broker.port), "cars/#").watch("f")
        try:
            sender.send(publish("locus/fence/f", fence_payload([(0, 0), (2, 0), (2, 2), (0, 2)]), retain=True))
            wait_for(lambda: watched.feed.link.connected, "a connection", 60)

            def told() -> bool:
                sender.send(publish("cars/1/@at:1,1", b"in") + publish("cars/2/@at:5,5", b"out"))
                return watched.count > 2

            wait_for(told, "messages inside", 60)
            assert {message.topic for message in watched.latest()} == {"cars/1"}
        finally:
            watched.feed.stop()
