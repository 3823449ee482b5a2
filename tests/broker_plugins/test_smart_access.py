"""Access control judges the inner filter: no prefix and no order of prefixes gets around it."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest

from tests.broker_plugins.smart import PLUGINS, SQUARE, heard, payloads
from tests.brokers import RunningBroker, locus
from tests.mqtt_wire import connect, publish

if TYPE_CHECKING:
    from collections.abc import Iterator

GUARDS = "tests.broker_plugins.smart_guards"
AREAS = ("bbox:0,0,1,1", "circle:0.5,0.5,50km", "cell:s", "fence:f", "near:9km", "bbox:0,0,1,1;detect=enter")
WHERES = ("v>=0", "v=1,w.x<9")


def prefixes() -> list[str]:
    """Every set of prefixes in every order, with every kind of area."""
    found = [""]
    for area, where in itertools.product(AREAS, WHERES):
        said = (f"$geo/{area}/", f"$where/{where}/", "$share/g/")
        for count in (1, 2, 3):
            found += ["".join(some) for some in itertools.permutations(said, count)]
    return list(dict.fromkeys(found))


@pytest.fixture(scope="module", params=["Secrets", "SlowSecrets"])
def broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    with locus(plugins={**PLUGINS, f"{GUARDS}.{request.param}": {}}) as running:
        with connect(running.port, "fencer") as fencer:
            fencer.send(publish("locus/fence/f", SQUARE, retain=True))
            fencer.messages_until_ping()
        yield running


PAYLOAD = json.dumps({"v": 1, "w": {"x": 2}}).encode()


def test_there_are_many_ways_to_ask() -> None:
    assert len(prefixes()) > 100


@pytest.mark.parametrize("inner", ["secret", "secret/a", "secret/#", "secret/+/b"])
def test_what_may_not_be_subscribed_to_is_refused_behind_every_prefix(inner, broker) -> None:
    with connect(broker.port, "outsider") as client:
        refused = client.subscribe(*((prefix + inner, 1) for prefix in prefixes()))
        assert refused == [0x80] * len(prefixes())
        allowed = client.subscribe(*((prefix + "open/#", 1) for prefix in prefixes()))
        assert allowed == [1] * len(prefixes())


@pytest.mark.parametrize("top", ["", ";top:500"])
def test_what_may_not_be_received_is_not_delivered_through_any_prefix(top, broker) -> None:
    wires = {}
    with connect(broker.port, "publisher") as sender:
        for number, prefix in enumerate(prefixes()):
            for name in ("outsider", "insider"):
                wire = wires[name, prefix] = connect(broker.port, f"{name}-{number}")
                wire.send(publish("locus/me/position/@at:0.6,0.5", b""))
                # Groups of their own, so that it is nobody else's turn.
                assert wire.subscribe((prefix.replace("$share/g/", f"$share/{name}{number}/") + "+/#", 0)) == [0]
        sender.send(publish(f"hidden/x/@at:0.6,0.5{top}", PAYLOAD), publish(f"open/x/@at:0.6,0.5{top}", PAYLOAD))
        sender.messages_until_ping()
        for (name, prefix), wire in wires.items():
            got = [each.topic for each in wire.messages_until_ping() if not each.topic.startswith("locus/")]
            assert got == (["open/x"] if name == "outsider" else ["hidden/x", "open/x"]), prefix
            wire.close()


def test_retained_messages_are_guarded_behind_every_prefix(broker) -> None:
    with connect(broker.port, "publisher") as sender:
        sender.send(
            publish("hidden/r/@at:0.6,0.5", PAYLOAD, retain=True), publish("open/r/@at:0.6,0.5", PAYLOAD, retain=True)
        )
        sender.messages_until_ping()
    for number, prefix in enumerate(prefixes()):
        with connect(broker.port, f"outsider-r{number}") as wire:
            wire.send(publish("locus/me/position/@at:0.6,0.5", b""))
            wire.subscribe((prefix + "+/r", 0))
            # Shared subscriptions get no retained messages, and those that detect wait for something to happen.
            silent = "$share" in prefix or "detect" in prefix
            expected = [] if silent else ["open/r"]
            got = [each.topic for each in wire.messages(len(expected)) + wire.messages_until_ping()]
            assert got == expected, prefix


def test_a_receipt_goes_only_where_its_publisher_may_publish(broker) -> None:
    with connect(broker.port, "asker") as client:
        client.subscribe(("locked/#", 0), ("mine/#", 0))
        client.send(publish("open/y/@reply:locked/receipt", b"{}"), publish("open/y/@reply:mine/receipt", b"{}"))
        assert [each.topic for each in client.messages(1)] == ["mine/receipt"]
        assert client.messages_until_ping() == []


def test_who_may_not_receive_does_not_count_among_the_best() -> None:
    with (
        locus(plugins={**PLUGINS, f"{GUARDS}.Secrets": {}}) as broker,
        connect(broker.port, "outsider") as outsider,
        connect(broker.port, "insider") as insider,
    ):
        outsider.subscribe(("$where/v=0..1/hidden/#", 0))
        insider.subscribe(("$where/v=0..9/hidden/#", 0))
        insider.send(publish("hidden/z/@top:1", b'{"v":1}'))
        assert payloads(insider.messages(1)) == ['{"v":1}']
        assert outsider.messages_until_ping() == []


def test_a_position_that_may_not_be_published_is_not_taken() -> None:
    with (
        locus(plugins={**PLUGINS, f"{GUARDS}.NoPositions": {}}) as broker,
        connect(broker.port, "listener") as listener,
        connect(broker.port, "sender") as sender,
    ):
        listener.subscribe(("$geo/near:1km/t", 0), ("t", 0))
        listener.send(publish("locus/me/position/@at:1,1", b""))
        listener.messages_until_ping()
        listener.subscribe(("t/none", 0))
        sender.send(publish("t/@at:1,1", b"once, by the plain filter"))
        assert heard(sender, listener) == [["once, by the plain filter"]]
        assert "publish to 'locus/me/position' refused: access control" in broker.log
