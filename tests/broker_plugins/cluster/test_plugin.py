"""Nodes of a cluster over real sockets and a real fabric."""

from __future__ import annotations

import pytest

from broker_plugins.cluster.wire import FORMAT
from tests.broker_plugins.cluster.nodes import Cluster, cluster
from tests.mqtt_wire import DISCONNECT, Kind, Silence, Will, Wire, acknowledge, connect, publish, wait_for

pytestmark = pytest.mark.xdist_group("cluster")  # they share one cluster


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory):
    with cluster(tmp_path_factory.mktemp("cluster"), "a", "b", "c") as made:
        yield made
        for name, node in made.nodes.items():
            assert "Traceback" not in node.log, f"{name}: {node.log[-3000:]}"


def payloads(wire: Wire, count: int) -> list[bytes]:
    return [each.payload for each in wire.messages(count)]


def publish_all(wire: Wire, topic: str, texts: list[bytes], qos: int) -> None:
    """Publish and wait until all is acknowledged."""
    wire.send(*(publish(topic, text, qos=qos, packet_id=number) for number, text in enumerate(texts, 1)))
    if qos:
        for number in range(1, len(texts) + 1):
            answer = wire.expect(Kind.PUBACK if qos == 1 else Kind.PUBREC)
            assert answer.packet_id == number
    if qos == 2:
        for number in range(1, len(texts) + 1):
            wire.send(acknowledge(Kind.PUBREL, number))
            wire.expect(Kind.PUBCOMP)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_travel_once_and_in_order(nodes: Cluster, qos: int) -> None:
    texts = [str(number).encode() for number in range(200)]
    with (
        connect(nodes.port("b"), "there") as there,
        connect(nodes.port("a"), "here") as here,
        connect(nodes.port("a"), "sender") as sender,
    ):
        for subscriber in (there, here):
            assert subscriber.subscribe((f"order/{qos}/#", 2), (f"order/{qos}/+", 1)) == [2, 1]
        nodes.wait_heard(there, "a", f"order/{qos}/probe")
        here.messages_until_ping()
        publish_all(sender, f"order/{qos}/x", texts, qos)
        for subscriber in (there, here):
            got = subscriber.messages(len(texts))
            assert [each.payload for each in got] == texts
            assert {each.qos for each in got} == {qos}
            assert not subscriber.messages_until_ping()


def test_only_those_who_want_a_message_get_it(nodes: Cluster) -> None:
    with connect(nodes.port("b"), "there") as there, connect(nodes.port("a"), "sender") as sender:
        there.subscribe(("wanted/+", 1), ("gone/+", 1))
        nodes.wait_heard(there, "a", "wanted/probe")
        nodes.wait_heard(there, "a", "gone/probe")
        there.send(b"\xa2\x0a\x00\x02\x00\x06gone/+")
        there.expect(Kind.UNSUBACK)
        publish_all(sender, "unwanted/1", [b"no"], 1)
        publish_all(sender, "wanted/1", [b"yes"], 1)
        assert payloads(there, 1) == [b"yes"]
        publish_all(sender, "wanted/1", [b"last"], 1)
        assert payloads(there, 1) == [b"last"]


def test_a_shared_subscription_gets_a_message_once_in_the_whole_cluster(nodes: Cluster) -> None:
    group = ("$share/workers/jobs/+", 1)
    with (
        connect(nodes.port("a"), "wa") as wa,
        connect(nodes.port("b"), "wb") as wb,
        connect(nodes.port("c"), "wc") as wc,
        connect(nodes.port("b"), "everything") as everything,
        connect(nodes.port("a"), "sender") as sender,
    ):
        workers = [wa, wb, wc]
        for worker in workers:
            worker.subscribe(group)
        everything.subscribe(("jobs/#", 1))
        nodes.wait_heard(everything, "a", "jobs/probe/x")
        # Each node must know of the group before turns are counted.
        got: dict[Wire, set[bytes]] = {worker: set() for worker in workers}

        def all_take_part() -> bool:
            publish_all(sender, "jobs/warm", [b"w"] * 6, 1)
            for worker in workers:
                try:
                    while True:
                        got[worker].add(worker.messages(1, 0.1)[0].payload)
                except Silence:
                    pass
            return all(got.values())

        wait_for(all_take_part, "every node to have its turn")
        everything.messages_until_ping()
        texts = [str(number).encode() for number in range(90)]
        publish_all(sender, "jobs/1", texts, 1)
        assert payloads(everything, 90) == texts
        shares = [payloads(worker, 30) for worker in workers]
        assert sorted(text for share in shares for text in share) == sorted(texts)
        for worker in workers:
            assert not worker.messages_until_ping()


def test_smart_subscriptions_are_matched_where_they_are(nodes: Cluster) -> None:
    with connect(nodes.port("c"), "watcher") as watcher, connect(nodes.port("a"), "car") as car:
        watcher.subscribe(("$geo/bbox:126,37,127,38/cars/+", 1), ("$where/speed>80/cars/+", 1), ("cars/ready", 0))
        nodes.wait_heard(watcher, "a", "cars/ready")
        publish_all(car, "cars/1", [b'{"lon":126.5,"lat":37.5,"speed":10}', b'{"lon":1,"lat":1,"speed":10}'], 1)
        publish_all(car, "cars/2", [b'{"lon":1,"lat":1,"speed":90}'], 1)
        publish_all(car, "cars/3/@at:126.9,37.9", [b"binary \x00"], 1)
        publish_all(car, "cars/4/@at:1,1", [b"elsewhere"], 1)
        publish_all(car, "cars/ready", [b"end"], 1)
        got = watcher.messages(4)
        assert [each.payload for each in got] == [
            b'{"lon":126.5,"lat":37.5,"speed":10}',
            b'{"lon":1,"lat":1,"speed":90}',
            b"binary \x00",
            b"end",
        ]
        assert got[2].topic == "cars/3"


def test_retained_messages_and_fences_are_on_every_node(nodes: Cluster) -> None:
    fence = b'{"type":"Polygon","coordinates":[[[10,10],[20,10],[20,20],[10,20],[10,10]]]}'
    with connect(nodes.port("a"), "sender") as sender, connect(nodes.port("c"), "watcher") as watcher:
        watcher.subscribe(("$geo/fence:harbour/ships/+", 1), ("ships/ready", 0), ("locus/fence/#", 1))
        for topic, payload in (("state/1", b"old"), ("state/1", b"new"), ("locus/fence/harbour", fence)):
            sender.send(publish(topic, payload, qos=1, retain=True))
            sender.expect(Kind.PUBACK)
        assert payloads(watcher, 1) == [fence]
        nodes.wait_heard(watcher, "b", "ships/ready")
        with connect(nodes.port("b"), "ship") as ship:
            publish_all(ship, "ships/1", [b'{"lon":15,"lat":15}', b'{"lon":25,"lat":15}'], 1)
        assert payloads(watcher, 1) == [b'{"lon":15,"lat":15}']
        for name in ("a", "b", "c"):
            assert retained(nodes, name, "state/1") == b"new"
        sender.send(publish("state/1", b"", qos=0, retain=True))
        for name in ("b", "c"):
            wait_for(lambda name=name: retained(nodes, name, "state/1") is None, f"the removal on {name}")


def retained(nodes: Cluster, name: str, topic: str) -> bytes | None:
    with connect(nodes.port(name), f"look-{name}") as wire:
        wire.subscribe((topic, 0))
        got = wire.messages_until_ping()
        return got[0].payload if got else None


def test_a_client_is_on_one_node_at_a_time_and_its_session_moves(nodes: Cluster) -> None:
    with connect(nodes.port("a"), "sender") as sender:
        first = connect(nodes.port("b"), "roamer", clean=False)
        first.subscribe(("mail/#", 2))
        nodes.wait_heard(first, "a", "mail/probe")
        publish_all(sender, "mail/1", [b"unacknowledged"], 1)
        assert first.expect(Kind.PUBLISH).payload == b"unacknowledged"
        second = connect_again(nodes, "c", "roamer")
        first.wait_until_closed()
        assert second.messages(1)[0].payload == b"unacknowledged"
        nodes.wait_heard(second, "a", "mail/probe")
        second.send(DISCONNECT)
        second.wait_until_closed()
        publish_all(sender, "mail/1", [b"while away 1", b"while away 2"], 2)
        third = connect_again(nodes, "a", "roamer")
        assert payloads(third, 2) == [b"while away 1", b"while away 2"]
        publish_all(sender, "mail/1", [b"here"], 1)
        assert payloads(third, 1) == [b"here"]
        with connect(nodes.port("b"), "roamer") as clean:
            third.wait_until_closed()
            assert not clean.messages_until_ping()
        fresh = connect(nodes.port("c"), "roamer", clean=False)
        fresh.close()


def test_a_clean_session_is_over_when_its_client_connects_elsewhere(nodes: Cluster) -> None:
    clean = connect(nodes.port("a"), "one-at-a-time")
    kept = connect(nodes.port("b"), "one-at-a-time", clean=False)
    clean.wait_until_closed()
    clean = connect(nodes.port("c"), "one-at-a-time")
    kept.wait_until_closed()
    clean.close()


def connect_again(nodes: Cluster, name: str, client_id: str) -> Wire:
    from tests.mqtt_wire import connect_packet

    wire = Wire(nodes.port(name))
    wire.send(connect_packet(client_id, clean=False))
    assert wire.expect(Kind.CONNACK).session_present
    return wire


def test_a_will_travels(nodes: Cluster) -> None:
    with connect(nodes.port("b"), "heir") as heir:
        heir.subscribe(("wills/#", 1))
        nodes.wait_heard(heir, "a", "wills/probe")
        mortal = connect(nodes.port("a"), "mortal", will=Will("wills/mortal", b"gone", qos=1))
        mortal.close()
        assert payloads(heir, 1) == [b"gone"]


def test_inner_subjects_are_out_of_reach(nodes: Cluster) -> None:
    """Topics travel inside messages, they are never subjects: these are ordinary topics and nothing else."""
    with connect(nodes.port("a"), "mallory") as mallory, connect(nodes.port("b"), "there") as there:
        subjects = ["locus.locus.hello", "locus.locus.mail.b", "locus.locus.node.b", "locus/locus/mail/b", "$JS/API/x"]
        there.subscribe(*((subject, 1) for subject in subjects), ("#", 1), (">", 1))
        nodes.wait_heard(there, "a", "probe")
        for subject in subjects[:4]:
            publish_all(mallory, subject, [FORMAT + b"-\x92\xa1a\x90"], 1)
        assert [each.topic for each in there.messages(4)] == subjects[:4]
        assert not there.messages_until_ping()
        assert "cannot be read" not in nodes.nodes["b"].log
