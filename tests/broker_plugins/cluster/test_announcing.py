"""When a SUBACK may go: every node that is there knows the filters, or the time is up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from broker_plugins.cluster.announcing import Announcing
from broker_plugins.cluster.members import Members
from broker_plugins.cluster.options import ClusterCounters, ClusterOptions
from broker_plugins.cluster.wire import Applied, Delta, Hello, decode

SECONDS = 60.0


class World:
    """A node whose words are kept."""

    def __init__(self, *others: str) -> None:
        self.now = 0.0
        self.said: list[tuple[str, bytes]] = []
        members = Members(5.0, 100.0, lambda: self.now)
        self.node: Any = SimpleNamespace(
            name="here",
            incarnation=7,
            options=ClusterOptions(node="here"),
            counters=ClusterCounters(),
            members=members,
            engine=SimpleNamespace(loop=asyncio.get_running_loop(), forget_routes=lambda inner: None),
            fabric=SimpleNamespace(ready=True, publish=self._publish, subject=lambda *parts: ".".join(parts)),
            work=lambda coroutine: asyncio.ensure_future(coroutine),
        )
        for name in others:
            members.heard(Hello(name, 1, 0, 0))
        self.announcing = Announcing(self.node)

    async def _publish(self, subject: str, data: bytes) -> None:
        self.said.append((subject, data))

    def subscribe(self, inner: str) -> None:
        session: Any = SimpleNamespace(persistent=False)
        subscription: Any = SimpleNamespace(inner=inner, share=None, smart=None, session=session)
        self.announcing.subscribed(subscription)

    def confirm(self, node: str, version: int, incarnation: int = 7) -> None:
        self.announcing._on_applied(Applied(node, incarnation, version))


async def test_a_subscription_is_known_when_all_nodes_say_so() -> None:
    world = World("b", "c")
    for node in ("b", "c"):
        world.confirm(node, 0)
    assert world.announcing.known_everywhere(SECONDS) is None
    world.subscribe("t/#")
    known = world.announcing.known_everywhere(SECONDS)
    assert known is not None
    world.confirm("b", 1)
    world.confirm("c", 1, incarnation=6)  # of our former life
    assert not known.done()
    world.confirm("c", 1)
    await asyncio.wait_for(known, SECONDS)
    world.subscribe("t/#")
    assert world.announcing.known_everywhere(SECONDS) is None, "it was known already"
    assert world.node.counters.subscribed_unknown == 0


async def test_nobody_waits_for_a_node_that_is_gone_or_for_ever() -> None:
    world = World("b", "c")
    world.subscribe("t")
    known = world.announcing.known_everywhere(SECONDS)
    assert known is not None
    world.confirm("b", 1)
    world.now = 4.0
    world.node.members.heard(Hello("b", 1, 0, 0))
    world.now = 6.0
    world.announcing.left("c")
    await asyncio.wait_for(known, SECONDS)
    world.subscribe("u")
    slow = world.announcing.known_everywhere(0.01)
    assert slow is not None
    await asyncio.wait_for(slow, SECONDS)
    assert world.node.counters.subscribed_unknown == 1


async def test_a_node_without_a_fabric_or_without_others_waits_for_nobody() -> None:
    alone = World()
    alone.subscribe("t")
    assert alone.announcing.known_everywhere(SECONDS) is None
    cut_off = World("b")
    cut_off.node.fabric.ready = False
    cut_off.subscribe("t")
    assert cut_off.announcing.known_everywhere(SECONDS) is None


async def test_what_is_known_of_another_node_is_confirmed_once() -> None:
    world = World("b")
    world.announcing.others.replace(Delta("b", 1, 0, 0, []))
    world.announcing._on_delta(Delta("b", 1, 0, 1, []))
    for _ in range(3):
        world.announcing.heard(Hello("b", 1, 1, 0))
    await asyncio.sleep(0)
    confirmed = [(subject, decode(data, Applied)) for subject, data in world.said]
    assert confirmed == [("applied.b", Applied("here", 1, 1))]


async def test_what_is_announced_is_counted_for_each_node_that_is_told() -> None:
    world = World("b", "c")
    world.subscribe("t/#")
    world.announcing.known_everywhere(SECONDS)
    await asyncio.sleep(0)
    (_, delta) = world.said[0]
    assert world.node.counters.announced_bytes == 2 * len(delta)
    world.announcing.others.replace(Delta("b", 1, 0, 0, []))
    world.announcing._on_delta(Delta("b", 1, 0, 1, []))
    await asyncio.sleep(0)
    (subject, confirmed) = world.said[1]
    assert subject == "applied.b"
    assert world.node.counters.announced_bytes == 2 * len(delta) + len(confirmed)
