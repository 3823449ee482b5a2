"""Nodes without a fabric, a fabric that goes and comes back, nodes that are killed: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING

import nats

from broker_plugins.cluster.wire import Taken, encode
from tests.broker_plugins.cluster.nodes import Cluster, cluster
from tests.broker_plugins.cluster.test_plugin import connect_again, payloads, publish_all, retained
from tests.mqtt_wire import DISCONNECT, Kind, Wire, connect, connect_packet, publish, wait_for

if TYPE_CHECKING:
    from pathlib import Path


def texts(word: str, count: int) -> list[bytes]:
    return [f"{word} {number}".encode() for number in range(count)]


def kill_fabric(nodes: Cluster) -> None:
    assert nodes.fabric.process is not None
    nodes.fabric.process.kill()
    nodes.fabric.process.wait()


def test_a_node_serves_without_a_fabric_says_so_once_and_joins_by_itself(tmp_path: Path) -> None:
    with ExitStack() as stack:
        nodes = Cluster(tmp_path, stack)
        for name in ("a", "b"):
            nodes.start(name)
            wait_for(lambda name=name: "cannot reach the fabric" in nodes.nodes[name].log, "the warning")
        with connect(nodes.port("a"), "sub") as subscriber, connect(nodes.port("a"), "pub") as publisher:
            subscriber.subscribe(("t/#", 1))
            publish_all(publisher, "t/1", texts("alone", 5), 1)
            assert payloads(subscriber, 5) == texts("alone", 5)
            publisher.send(publish("kept/1", b"from before", qos=1, retain=True))
            publisher.expect(Kind.PUBACK)
            nodes.start_fabric()
            nodes.wait_joined("a", "b")
            nodes.wait_heard(subscriber, "b", "t/probe")
        wait_for(lambda: retained(nodes, "b", "kept/1") == b"from before", "what was retained before on the other node")
        assert nodes.nodes["a"].log.count("cannot reach the fabric") == 1
        assert nodes.nodes["a"].log.count("has joined cluster") == 1


def test_a_fabric_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    with cluster(tmp_path, "a", "b") as nodes:
        away = connect(nodes.port("b"), "away", clean=False)
        away.subscribe(("log/#", 2))
        with connect(nodes.port("a"), "pub") as publisher, connect(nodes.port("a"), "near") as near:
            near.subscribe(("log/#", 1))
            nodes.wait_heard(away, "a", "log/probe")
            near.messages_until_ping()
            publish_all(publisher, "log/1", texts("before", 20), 2)
            assert payloads(away, 20) == texts("before", 20)
            kill_fabric(nodes)
            publish_all(publisher, "log/1", texts("during", 50), 2)
            assert payloads(near, 70) == texts("before", 20) + texts("during", 50)
            for name, word in (("a", b"older"), ("b", b"newer")):
                with connect(nodes.port(name), "writer") as writer:
                    writer.send(publish("torn/1", word, qos=1, retain=True), publish("torn/2", b"x", retain=True))
                    writer.expect(Kind.PUBACK)
                    assert not writer.messages_until_ping()
            with connect(nodes.port("b"), "writer") as writer:
                writer.send(publish("torn/2", b"", qos=1, retain=True))
                writer.expect(Kind.PUBACK)
            nodes.start_fabric()
            publish_all(publisher, "log/1", texts("after", 20), 2)
            assert payloads(away, 70) == texts("during", 50) + texts("after", 20)
            assert not away.messages_until_ping()
        for name in ("a", "b"):
            wait_for(lambda name=name: retained(nodes, name, "torn/1") == b"newer", f"the newest on {name}", 15)
            wait_for(lambda name=name: retained(nodes, name, "torn/2") is None, f"the removal on {name}", 15)
        away.close()


def test_a_node_that_is_killed_gets_what_was_acknowledged_when_it_is_back(tmp_path: Path) -> None:
    with cluster(tmp_path, "a", "b") as nodes:
        away = connect(nodes.port("b"), "away", clean=False)
        away.subscribe(("log/#", 2))
        nodes.wait_heard(away, "a", "log/probe")
        away.send(DISCONNECT)
        away.wait_until_closed()
        with connect(nodes.port("a"), "pub") as publisher:
            publish_all(publisher, "log/1", texts("one", 30), 2)
            nodes.nodes["b"].kill()
            publish_all(publisher, "log/1", texts("two", 30), 2)
            wait_for(lambda: "taken for gone" in nodes.nodes["a"].log, "a to miss b")
            publish_all(publisher, "log/1", texts("three", 30), 2)
            nodes.start("b")
            wait_for(lambda: nodes.nodes["b"].log.count("has joined cluster") == 2, "b to join again", 20)
            back = connect_again(nodes, "b", "away")
            assert payloads(back, 90) == texts("one", 30) + texts("two", 30) + texts("three", 30)
            publish_all(publisher, "log/1", texts("four", 5), 2)
            assert payloads(back, 5) == texts("four", 5)
            assert not back.messages_until_ping()
            back.close()


def test_what_waits_for_the_fabric_survives_the_death_of_its_node(tmp_path: Path) -> None:
    with cluster(tmp_path, "a", "b") as nodes:
        away = connect(nodes.port("b"), "away", clean=False)
        away.subscribe(("log/#", 2))
        nodes.wait_heard(away, "a", "log/probe")
        kill_fabric(nodes)
        with connect(nodes.port("a"), "pub") as publisher:
            publish_all(publisher, "log/1", texts("orphan", 40), 2)
        nodes.nodes["a"].kill()
        nodes.start("a")
        nodes.start_fabric()
        assert payloads(away, 40) == texts("orphan", 40)
        nodes.wait_heard(away, "a", "log/probe")
        away.close()


def test_what_a_dead_node_kept_for_a_client_reaches_it_elsewhere_when_the_node_is_back(tmp_path: Path) -> None:
    with cluster(tmp_path, "a", "b") as nodes:
        first = connect(nodes.port("b"), "away", clean=False)
        first.subscribe(("log/#", 2), ("only/there", 1))
        nodes.wait_heard(first, "a", "log/probe")
        with connect(nodes.port("a"), "pub") as publisher:
            nodes.nodes["b"].kill()
            publish_all(publisher, "log/1", texts("in the mailbox", 10), 2)
            elsewhere = connect(nodes.port("a"), "away", clean=False)
            elsewhere.subscribe(("other/#", 1))
            nodes.start("b")
            wait_for(lambda: nodes.nodes["b"].log.count("has joined cluster") == 2, "b to join again", 20)
            got: list[bytes] = []

            def comes_back() -> bool:
                with connect_again(nodes, "a", "away") as again:
                    got.extend(each.payload for each in again.messages_until_ping())
                return len(got) >= 10

            wait_for(comes_back, "the mail of the dead node")
            assert got == texts("in the mailbox", 10)
            with connect_again(nodes, "a", "away") as again:
                publish_all(publisher, "only/there", [b"moved with it"], 1)
                publish_all(publisher, "other/1", [b"its own"], 1)
                assert payloads(again, 2) == [b"moved with it", b"its own"]


async def say_taken(nodes: Cluster, node: str) -> None:
    """Say for a node that it takes all its mail, as it does just before it takes it."""
    client = await nats.connect(nodes.fabric.url)
    info = await client.jetstream().stream_info(f"LOCUS_locus_MAIL_{node}")
    assert info.state.last_seq
    taken = Taken(node, str(info.created), info.state.last_seq)
    await client.publish("locus.locus.taken", encode(taken))
    await client.flush()
    await client.close()


def test_the_first_mail_of_a_node_that_dies_before_it_takes_it_follows_its_session(tmp_path: Path) -> None:
    with cluster(tmp_path, "a", "b") as nodes:
        first = connect(nodes.port("b"), "heir", clean=False)
        first.subscribe(("log/#", 2))
        nodes.nodes["b"].kill()
        with connect(nodes.port("a"), "pub") as publisher:
            publish_all(publisher, "log/1", texts("its first mail", 20), 2)
        asyncio.run(say_taken(nodes, "b"))
        elsewhere = connect_again(nodes, "a", "heir")
        nodes.start("b")
        assert payloads(elsewhere, 20) == texts("its first mail", 20)
        assert not elsewhere.messages_until_ping()
        elsewhere.close()


def test_a_session_goes_on_on_the_only_node_that_is_left(tmp_path: Path) -> None:
    with cluster(tmp_path, "a", "b") as nodes:
        first = connect(nodes.port("b"), "heir", clean=False)
        first.subscribe(("log/#", 2))
        with connect(nodes.port("a"), "pub") as publisher:
            nodes.nodes["b"].kill()
            publish_all(publisher, "log/1", texts("while nobody was there", 20), 2)
            wait_for(lambda: "taken for gone" in nodes.nodes["a"].log, "a to miss b", 60)
            publish_all(publisher, "log/1", texts("when it was known", 5), 2)
            elsewhere = connect_again(nodes, "a", "heir")
            publish_all(publisher, "log/1", texts("now", 5), 2)
            wanted = [*texts("while nobody was there", 20), *texts("when it was known", 5), *texts("now", 5)]
            assert payloads(elsewhere, 30) == wanted
            nodes.start("b")
            wait_for(lambda: nodes.nodes["b"].log.count("has joined cluster") == 2, "b to join again", 60)
            publish_all(publisher, "log/1", texts("after", 5), 2)
            assert payloads(elsewhere, 5) == texts("after", 5)
            elsewhere.close()
            back = connect_again(nodes, "b", "heir")
            assert not back.messages_until_ping()
            publish_all(publisher, "log/1", texts("back", 3), 2)
            assert payloads(back, 3) == texts("back", 3)
            back.close()
        fresh = connect(nodes.port("b"), "heir")
        fresh.close()


def test_a_client_that_begins_anew_elsewhere_does_not_find_its_old_session_again(tmp_path: Path) -> None:
    with cluster(tmp_path, "a", "b") as nodes:
        first = connect(nodes.port("b"), "anew", clean=False)
        first.subscribe(("log/#", 1))
        nodes.nodes["b"].kill()
        with connect(nodes.port("a"), "anew"), connect(nodes.port("a"), "pub") as publisher:
            publish_all(publisher, "log/1", texts("for nobody", 3), 1)
        nodes.start("b")
        wait_for(lambda: nodes.nodes["b"].log.count("has joined cluster") == 2, "b to join again", 60)

        def is_forgotten() -> bool:
            wire = Wire(nodes.port("b"))
            wire.send(connect_packet("anew", clean=False))
            present = wire.expect(Kind.CONNACK).session_present
            wire.close()
            return not present

        wait_for(is_forgotten, "the old session to end", 60)
