"""What nodes announce arrives as it is, whatever is lost, repeated or late on the way."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker_plugins.cluster.interest import OtherWishes, OwnWishes
from broker_plugins.cluster.wire import DURABLE, HELD, Delta, decode, encode
from broker_plugins.engine.topics import matches

FILTERS = ("a", "a/b", "a/+", "#", "a/#", "b")
TOPICS = ("a", "a/b", "a/c", "b", "c/d")
GROUPS = ("", "$share/g/x", "$share/h/x")


class Announcements(RuleBasedStateMachine):
    """Three nodes that subscribe and leave, and one that listens to them over a line that loses things."""

    def __init__(self) -> None:
        super().__init__()
        self.incarnation = 1
        self.nodes = {name: OwnWishes(name, 1) for name in "xyz"}
        self.held: dict[str, list[tuple[str, str, bool]]] = {name: [] for name in "xyz"}
        self.others = OtherWishes()
        self.line: list[bytes] = []

    @rule(
        node=st.sampled_from("xyz"),
        inner=st.sampled_from(FILTERS),
        group=st.sampled_from(GROUPS),
        durable=st.booleans(),
    )
    def subscribe(self, node: str, inner: str, group: str, durable: bool) -> None:
        self.nodes[node].add(inner, group, durable)
        self.held[node].append((inner, group, durable))

    @rule(node=st.sampled_from("xyz"), pick=st.integers(0, 50))
    def unsubscribe(self, node: str, pick: int) -> None:
        if self.held[node]:
            self.nodes[node].remove(*self.held[node].pop(pick % len(self.held[node])))

    @rule(node=st.sampled_from("xyz"), lost=st.booleans(), twice=st.booleans())
    def announce(self, node: str, lost: bool, twice: bool) -> None:
        delta = self.nodes[node].delta()
        if delta is not None and not lost:
            self.line += [encode(delta)] * (1 + twice)

    @rule()
    def arrive(self) -> None:
        while self.line:
            self.others.apply(decode(self.line.pop(0), Delta))

    @rule(node=st.sampled_from("xyz"))
    def restart(self, node: str) -> None:
        self.incarnation += 1
        self.nodes[node] = OwnWishes(node, self.incarnation)
        self.held[node] = []

    @rule()
    def settle(self) -> None:
        """All deltas arrive; then hellos do, and whoever is behind asks."""
        for node in self.nodes.values():
            delta = node.delta()
            if delta is not None:
                self.line.append(encode(delta))
        self.arrive()
        for node in self.nodes.values():
            if not self.others.is_current(node.node, node.incarnation, node.version):
                self.others.replace(decode(encode(node.snapshot(), squeeze=True), Delta))
        for topic in TOPICS:
            wanting = self.others.wanting(topic)
            nodes: dict[str, int] = {}
            groups: dict[str, dict[str, int]] = {}
            for name, held in self.held.items():
                for inner, group, durable in held:
                    if matches(inner, topic):
                        into = groups.setdefault(group, {}) if group else nodes
                        into[name] = max(into.get(name, 0), DURABLE if durable else HELD)
            assert wanting.nodes == nodes
            assert wanting.groups == groups

    @invariant()
    def nothing_is_left_of_what_is_gone(self) -> None:
        if not any(self.held.values()):
            assert all(len(node) == 0 for node in self.nodes.values())


TestAnnouncements = Announcements.TestCase
TestAnnouncements.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_snapshot_older_than_the_deltas_is_not_taken() -> None:
    own, others = OwnWishes("x", 1), OtherWishes()
    own.add("a", "", durable=False)
    own.delta()
    old = own.snapshot()
    others.replace(old)
    own.add("b", "", durable=False)
    delta = own.delta()
    assert delta is not None
    assert others.apply(delta) == ["b"]
    assert others.replace(old) == []
    assert others.wanting("b").nodes == {"x": HELD}
    assert sorted(others.forget("x")) == ["a", "b"]
    assert len(others) == 0
