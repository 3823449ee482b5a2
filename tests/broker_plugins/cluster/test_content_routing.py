"""`$where` subscribers on three nodes, against an oracle: the same whether messages go straight or are passed on."""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import ExitStack, suppress
from typing import Any

import nats
import nats.errors
import pytest

from tests.broker_plugins.cluster.nodes import CLUSTER, Cluster, cluster
from tests.mqtt_wire import Closed, Kind, Silence, Wire, connect, publish, unsubscribe, wait_for

pytestmark = pytest.mark.xdist_group("cluster-content")

BOUND_S = 60.0
Conditions = dict[str, tuple[float, float]]


class Listener:
    """A subscriber and what the oracle says it should have got of each publisher."""

    def __init__(self, wire: Wire, node: str) -> None:
        self.wire = wire
        self.node = node
        self.filters: dict[str, tuple[str, Conditions | None]] = {}
        self.expected: dict[str, list[int]] = {}
        self.got: dict[str, list[int]] = {}
        self.ends: dict[str, int] = {}

    def wants(self, topic: str, payload: Any) -> bool:
        for inner, conditions in self.filters.values():
            if inner != topic and not (inner.endswith("#") and topic.startswith(inner[:-1])):
                continue
            if conditions is None:
                return True
            if isinstance(payload, dict) and all(
                name in payload and low <= payload[name] <= high for name, (low, high) in conditions.items()
            ):
                return True
        return False

    def read(self, seconds: float = BOUND_S) -> None:
        """Take in one message."""
        message = self.wire.messages(1, seconds)[0]
        said = json.loads(message.payload)
        if message.topic == "end":
            self.ends[said["from"]] = said["round"]
        else:
            self.got.setdefault(said["from"], []).append(said["n"])


class World:
    """Listeners and publishers on all nodes."""

    def __init__(self, nodes: Cluster, stack: ExitStack, seed: int) -> None:
        self.nodes = nodes
        self._stack = stack
        self.rng = random.Random(seed)
        self.listeners: dict[str, Listener] = {}
        self.publishers: dict[str, Wire] = {}
        self._number = 0
        self._round = 0

    def connect(self, name: str, node: str) -> Listener:
        wire = self._stack.enter_context(connect(self.nodes.port(node), name))
        wire.subscribe(("end", 0))
        self.listeners[name] = Listener(wire, node)
        return self.listeners[name]

    def subscribe(self, listener: Listener, plain: bool = False) -> None:
        inner = self.rng.choice(["jobs/x", "jobs/#", "jobs/y"])
        conditions: Conditions | None = None
        text = inner
        if not plain:
            conditions = {}
            for name in self.rng.sample(["age", "pay"], self.rng.randint(1, 2)):
                low = self.rng.randint(0, 90)
                conditions[name] = (low, low + self.rng.choice([0, 5, 20]))
            text = f"$where/{','.join(f'{n}={low}..{high}' for n, (low, high) in conditions.items())}/{inner}"
        listener.wire.subscribe((text, 1))
        listener.filters[text] = (inner, conditions)

    def unsubscribe(self, listener: Listener) -> None:
        text = self.rng.choice([*listener.filters])
        del listener.filters[text]
        listener.wire.send(unsubscribe(text))
        while listener.wire.read(BOUND_S).kind is not Kind.UNSUBACK:
            pass

    def publisher(self, node: str) -> Wire:
        if node not in self.publishers:
            self.publishers[node] = self._stack.enter_context(
                connect(self.nodes.port(node), f"publisher-{node}-{self._number}")
            )
        return self.publishers[node]

    def publish(self, node: str, qos: int) -> None:
        """Publish something that a few listeners want."""
        self._number += 1
        topic = self.rng.choice(["jobs/x", "jobs/y", "jobs/z"])
        payload: Any = {"n": self._number, "from": f"{node}{qos}"}
        for name in ("age", "pay"):
            if self.rng.random() < 0.9:
                payload[name] = self.rng.randint(0, 110)
        self.publisher(node).send(
            publish(topic, json.dumps(payload).encode(), qos=qos, packet_id=self._number if qos else 0)
        )
        if qos:
            self.publisher(node).expect(Kind.PUBACK, BOUND_S)
        for listener in self.listeners.values():
            if listener.wants(topic, payload):
                listener.expected.setdefault(f"{node}{qos}", []).append(self._number)

    def check(self) -> None:
        """Everybody has got what it should, each publisher's in order, and nothing else."""
        for name, listener in self.listeners.items():
            for sender, expected in listener.expected.items():
                deadline = time.monotonic() + BOUND_S
                while len(listener.got.get(sender, ())) < len(expected):
                    try:
                        listener.read(deadline - time.monotonic())
                    except Silence:
                        got = listener.got.get(sender, [])
                        missing = sorted(set(expected) - set(got))
                        raise AssertionError(f"{name} on {listener.node} misses {missing} of {sender}") from None
        self.settle()
        for name, listener in self.listeners.items():
            for sender in sorted({*listener.got, *listener.expected}):
                got, expected = listener.got.get(sender, []), listener.expected.get(sender, [])
                assert got == expected, f"{name} on {listener.node}, of {sender}: {got} for {expected}"

    def settle(self) -> None:
        """Nothing is on its way any more that was published before."""
        self._round += 1
        for node in self.publishers:
            said = json.dumps({"from": node, "round": self._round}).encode()
            self.publishers[node].send(publish("end", said))
        for listener in self.listeners.values():
            while any(listener.ends.get(node) != self._round for node in self.publishers):
                listener.read()

    def status(self, node: str) -> dict[str, Any]:
        with connect(self.nodes.port(node), f"status-{node}") as wire:
            wire.subscribe(("$SYS/broker/locus/content", 0))
            said: dict[str, Any] = json.loads(wire.messages(1, BOUND_S)[0].payload)
            return said

    def wait_status(self, nodes: str, condition: Any, what: str) -> None:
        wait_for(lambda: all(condition(self.status(node)) for node in nodes), what, BOUND_S)

    def lose(self, node: str) -> None:
        """Kill a node; everybody on it is gone."""
        self.nodes.nodes[node].kill()
        self.publishers.pop(node, None)
        for name in [name for name, listener in self.listeners.items() if listener.node == node]:
            with suppress(Closed, OSError):
                self.listeners.pop(name).wire.close()


async def _gone(server: str, subject: str) -> bool:
    client = await nats.connect(server)
    try:
        await client.request(subject, b"", timeout=0.5)
    except nats.errors.NoRespondersError:
        return True
    except nats.errors.TimeoutError:
        return False
    finally:
        await client.close()
    return False


@pytest.mark.parametrize("mode", ["direct", "overlay"])
def test_random_subscribers_get_what_they_want_over_churn_and_the_loss_of_a_node(mode: str, tmp_path) -> None:
    # On a busy machine a message that is passed on may be overtaken by far; nothing is lost here, so nobody waits long.
    options = {CLUSTER: {"content": mode, "overlay_patience_s": 30.0}}
    with cluster(tmp_path, "a", "b", "c", plugins=options) as nodes, ExitStack() as stack:
        world = World(nodes, stack, 23)
        for number in range(12):
            listener = world.connect(f"listener-{number}", "abc"[number % 3])
            for _ in range(world.rng.randint(1, 4)):
                world.subscribe(listener)
        for node in "abc":
            world.publisher(node)
        world.wait_status("abc", lambda said: len(said["known"]) == 2, "all summaries to be known")
        for number in range(240):
            world.publish("abc"[number % 3], qos=int(number % 4 == 3))
        world.check()
        world.wait_status("abc", lambda said: said["narrowed"] > 20, "messages to be spared")
        if mode == "overlay":
            wait_for(lambda: any(world.status(node)["relayed"] for node in "abc"), "relays", BOUND_S)

        for _ in range(6):
            listener = world.rng.choice([*world.listeners.values()])
            if len(listener.filters) > 1:
                world.unsubscribe(listener)
            world.subscribe(listener, plain=world.rng.random() < 0.3)
        for number in range(120):
            world.publish("abc"[number % 3], qos=int(number % 4 == 3))
        world.check()

        world.lose("c")
        subject = "locus.locus.relay.c" if mode == "overlay" else "locus.locus.node.c"
        wait_for(lambda: asyncio.run(_gone(nodes.fabric.url, subject)), "the fabric to notice", BOUND_S)
        for number in range(100):
            world.publish("ab"[number % 2], qos=int(number % 4 == 3))
        world.check()

        nodes.start("c")
        nodes.wait_joined("c")
        for number in range(3):
            world.subscribe(world.connect(f"newcomer-{number}", "c"))
        world.wait_status("abc", lambda said: len(said["known"]) == 2, "all summaries to be known again")
        for number in range(90):
            world.publish("abc"[number % 3], qos=int(number % 4 == 3))
        world.check()
        for name in "ab":
            assert "Traceback" not in nodes.nodes[name].log, nodes.nodes[name].log[-3000:]


def test_all_that_is_not_a_box_of_numbers_takes_the_plain_way(tmp_path) -> None:
    with (
        cluster(tmp_path, "a", "b", plugins={CLUSTER: {"content": "overlay"}}) as nodes,
        connect(nodes.port("b"), "there") as there,
        connect(nodes.port("a"), "here") as here,
    ):
        there.subscribe(("$where/v>5/t", 1), ("ready", 0))
        nodes.wait_heard(there, "a", "ready")
        texts = [b'{"v":1}', b"no json", b'{"v":7}', b'{"w":9}']
        here.send(*(publish("t", text, qos=1, packet_id=number) for number, text in enumerate(texts, 1)))
        assert there.messages(1, BOUND_S)[0].payload == b'{"v":7}'
        here.send(publish("t", b'{"v":8}', qos=1, packet_id=9, retain=True))
        assert there.messages(1, BOUND_S)[0].payload == b'{"v":8}'
        here.send(publish("t", b'{"v":2}', qos=1, packet_id=10, retain=True))  # retained on all nodes all the same
        there.subscribe(("$geo/bbox:0,0,2,2/t", 1))
        here.send(publish("t", b'{"v":1,"lon":1,"lat":1}', qos=1, packet_id=11))
        assert there.messages(1, BOUND_S)[0].payload == b'{"v":1,"lon":1,"lat":1}'
        there.subscribe(("t", 1))
        assert there.messages(1, BOUND_S)[0].payload == b'{"v":2}'
        here.send(publish("t", b"no json", qos=1, packet_id=12), publish("t", b"once", qos=0))
        assert {each.payload for each in there.messages(2, BOUND_S)} == {b"no json", b"once"}
