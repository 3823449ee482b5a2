"""Causal groups over three NATS servers of which two reach each other slowly: answers overtake questions, or do not."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.broker_plugins.cluster.nodes import CLUSTER, GEO, RANKED, Cluster
from tests.broker_plugins.cluster.proxies import NatsCluster, SlowNetwork
from tests.brokers import ANONYMOUS, RunningBroker, free_port, locus
from tests.mqtt_wire import Kind, Packet, Silence, Wire, connect, publish, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("causal")  # they share one cluster, and change it one after the other

SECONDS = 60.0
SLOW_S = 0.2
LONG, BRIEF = "av", "brief"
BRIEF_S = 0.6
REPOSITORY = Path(__file__).parents[3]
EXAMPLE = REPOSITORY / "examples" / "ordered"
PLUGINS = yaml.safe_load((EXAMPLE / "broker.yaml").read_text())["plugins"]
GROUPS = {**PLUGINS[CLUSTER]["causal"], f"{LONG}/#": "30s", f"{BRIEF}/#": f"{BRIEF_S:g}s"}


class FarNodes(Cluster):
    """Nodes `a`, `b` and `c`, each at a NATS server of its own; what `a` and `c` say to each other takes its time."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        super().__init__(directory, stack)
        self.network = stack.enter_context(SlowNetwork())
        self.servers = NatsCluster(directory, stack, self.network)

    def start(self, name: str, **more: object) -> RunningBroker:
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        port = self._ports.setdefault(name, free_port())
        options = {
            "node": name,
            "servers": [self.servers.url("abc".index(name))],
            "hello_s": 0.3,
            "lease_s": 20.0,
            "causal": GROUPS,
            **more,
        }
        plugins = {ANONYMOUS: {"allow_anonymous": True}, GEO: {}, RANKED: {}, CLUSTER: options}
        self.nodes[name] = self._stack.enter_context(locus(plugins=plugins, port=port, directory=directory))
        return self.nodes[name]

    def status(self, name: str) -> dict[str, Any]:
        """What a node says of its causal groups, by filter, with its seat and what it knows of clocks."""
        with connect(self.port(name), f"status-{name}") as wire:
            wire.subscribe(("$SYS/broker/locus/causal", 0))
            said: dict[str, Any] = json.loads(wire.messages(1, SECONDS)[0].payload)
        return said | {group["filter"].partition("/")[0]: group for group in said["groups"]}

    def wait_status(self, name: str, what: str, *path: str, at_least: int) -> None:
        """Wait until a number that a node tells has grown to this."""

        def reached() -> bool:
            value: Any = self.status(name)
            for key in path:
                value = value.get(key, {})
            return bool(value) and value >= at_least

        wait_for(reached, what, SECONDS)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarNodes]:
    with ExitStack() as stack:
        made = FarNodes(tmp_path_factory.mktemp("far"), stack)
        for name in "abc":
            made.start(name)
        made.wait_joined()
        made.network.delay_s = SLOW_S
        yield made
        for name, node in made.nodes.items():
            assert "Traceback" not in node.log, f"{name}: {node.log[-3000:]}"


class Talk:
    """A client on `a` asks, one on `b` answers what it hears, one on `c` listens."""

    def __init__(self, nodes: FarNodes, stack: ExitStack, topic: str) -> None:
        self.topic = topic
        self._nodes = nodes
        self.asker = stack.enter_context(connect(nodes.port("a"), f"asker-{topic}"))
        self.listener = stack.enter_context(connect(nodes.port("c"), f"listener-{topic}"))
        self.listener.subscribe((f"{topic}/#", 1))
        self.meet(stack)

    def meet(self, stack: ExitStack) -> None:
        """Let somebody answer on `b`, and see that all hear each other."""
        self.answerer = stack.enter_context(connect(self._nodes.port("b"), f"answerer-{self.topic}"))
        self.answerer.subscribe((f"{self.topic}/question", 1), (f"{self.topic}/probe", 0))
        self._see(self.asker, self.answerer)
        self._see(self.answerer, self.listener)
        self._see(self.asker, self.listener)

    def _see(self, sender: Wire, receiver: Wire) -> None:
        """Return when what one publishes reaches the other; nobody counts probes that come later."""
        token = f"from {sender.socket.getsockname()}".encode()

        def reached() -> bool:
            sender.send(publish(f"{self.topic}/probe", token))
            with contextlib.suppress(Silence):
                while receiver.messages(1, 3.0)[0].payload != token:
                    pass
                return True
            return False

        wait_for(reached, f"{self.topic}/probe to travel", SECONDS)

    def next(self, receiver: Wire, count: int) -> list[Packet]:
        """The next messages that are no probes."""
        found: list[Packet] = []
        while len(found) < count:
            got = receiver.messages(count - len(found), SECONDS)
            found += [each for each in got if not each.topic.endswith("probe")]
        return found

    def ask(self, numbers: range, qos: int = 0) -> None:
        """Ask and answer, one after the other."""
        for number in numbers:
            _publish(self.asker, f"{self.topic}/question", number, qos)
            assert int(self.next(self.answerer, 1)[0].payload) == number
            _publish(self.answerer, f"{self.topic}/answer", number, qos)

    def heard(self, count: int) -> list[tuple[str, int]]:
        """The next messages on `c`, as kind and number."""
        return [(each.topic.rpartition("/")[2], int(each.payload)) for each in self.next(self.listener, count)]


def _publish(wire: Wire, topic: str, number: int, qos: int) -> None:
    wire.send(publish(topic, str(number).encode(), qos=qos, packet_id=1))
    if qos:
        wire.expect(Kind.PUBACK, SECONDS)


def violations(heard: list[tuple[str, int]]) -> int:
    """Answers that came before their question."""
    return sum(heard.index(("answer", n)) < heard.index(("question", n)) for kind, n in heard if kind == "answer")


def test_answers_overtake_questions_without_a_group_and_never_in_one(nodes: FarNodes) -> None:
    with ExitStack() as stack:
        plain, ordered = Talk(nodes, stack, "plain"), Talk(nodes, stack, LONG)
        for talk in (plain, ordered):
            talk.ask(range(20))
        assert violations(plain.heard(40)) > 0
        heard = ordered.heard(40)
        assert sorted(heard) == sorted((kind, n) for kind in ("question", "answer") for n in range(20))
        assert violations(heard) == 0
    nodes.wait_status("c", "answers that waited", LONG, "waited", at_least=1)


def test_acknowledged_messages_are_ordered_too_also_among_the_others(nodes: FarNodes) -> None:
    with ExitStack() as stack:
        talk = Talk(nodes, stack, LONG)
        talk.ask(range(3), qos=1)
        for number in range(3, 6):
            _publish(talk.asker, f"{LONG}/question", number, qos=1)
            talk.next(talk.answerer, 1)
            _publish(talk.answerer, f"{LONG}/answer", number, qos=0)
        heard = talk.heard(12)
        assert sorted(n for _, n in heard) == sorted([*range(6)] * 2)
        assert violations(heard) == 0


def test_smart_and_shared_subscriptions_choose_from_what_is_released(nodes: FarNodes) -> None:
    with ExitStack() as stack:
        talk = Talk(nodes, stack, LONG)
        high, near, *team = (
            stack.enter_context(connect(nodes.port(name), f"chooser-{number}")) for number, name in enumerate("ccac")
        )
        high.subscribe((f"$where/v>=100/{LONG}/#", 0))
        near.subscribe((f"$geo/bbox:0,0,10,10/{LONG}/#", 0))
        for member in team:
            member.subscribe((f"$share/team/{LONG}/#", 0))
        for number, place in ((1, "5,5"), (2, "50,50")):
            talk.asker.send(publish(f"{LONG}/question/@at:{place}", b'{"v": %d}' % number))
            talk.next(talk.answerer, 1)
            talk.answerer.send(publish(f"{LONG}/answer/@at:{place}", b'{"v": %d}' % (number + 100)))
        heard = said(talk.next(talk.listener, 4))
        assert sorted(heard) == [("answer", 101), ("answer", 102), ("question", 1), ("question", 2)]
        for number in (1, 2):
            assert heard.index(("question", number)) < heard.index(("answer", 100 + number))
        assert said(high.messages(2, SECONDS)) == [("answer", 101), ("answer", 102)]
        assert said(near.messages(2, SECONDS)) == [("question", 1), ("answer", 101)]
        taken: list[tuple[str, int]] = []

        def all_taken() -> bool:
            for member in team:
                taken.extend(said(member.messages_until_ping(SECONDS)))
            return len(taken) >= 4

        wait_for(all_taken, "the team to take all messages", SECONDS)
        assert sorted(taken) == sorted(heard)


def said(messages: list[Packet]) -> list[tuple[str, int]]:
    """The last level of the topic and the number in the payload."""
    return [(each.topic.rpartition("/")[2], int(json.loads(each.payload)["v"])) for each in messages]


def test_the_example_shows_the_difference_and_the_guide_quotes_it(nodes: FarNodes) -> None:
    addresses = [f"127.0.0.1:{nodes.port(name)}" for name in "abc"]
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "smoke.py"), *addresses],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lobby, building = (int(line.split()[1]) for line in done.stdout.splitlines())
    assert lobby > 0
    assert building == 0
    guide = (REPOSITORY / "docs" / "guides" / "ordered-and-on-time.md").read_text()
    examples = {line.strip() for path in EXAMPLE.iterdir() for line in path.read_text().splitlines()}
    quoted = "\n".join(re.findall(r"^```(?:yaml|python)\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)).splitlines()
    assert quoted
    for line in quoted:
        assert line.strip() in examples, line


def test_what_comes_after_its_lifetime_is_dropped_and_holds_nobody_up_any_longer(nodes: FarNodes) -> None:
    with ExitStack() as stack:
        talk = Talk(nodes, stack, BRIEF)
        nodes.network.delay_s = 4 * BRIEF_S
        try:
            before = nodes.status("c")[BRIEF]["dropped"]
            for number in range(5):  # those with a shortened life wait no longer than it lasts
                talk.asker.send(publish(f"{BRIEF}/question", str(number).encode()))
                talk.next(talk.answerer, 1)
                clause = "/@ttl:50ms" if number == 0 else ""
                talk.answerer.send(publish(f"{BRIEF}/answer{clause}", str(number).encode()))
            late = before.get("late", 0) + 5
            nodes.wait_status("c", "the questions to come, late", BRIEF, "dropped", "late", at_least=late)
        finally:
            nodes.network.delay_s = SLOW_S
        after = nodes.status("c")[BRIEF]["dropped"]
        rest = talk.listener.messages_until_ping(SECONDS)
        got = [(each.topic, int(each.payload)) for each in rest if not each.topic.endswith("probe")]
        assert {topic for topic, _ in got} <= {f"{BRIEF}/answer"}
        assert [number for _, number in got] == sorted(number for _, number in got)
        # A machine that is too busy may miss the moment; then it drops, and counts.
        given_up = {why: after.get(why, 0) - before.get(why, 0) for why in ("outlived", "stalled")}
        assert len(got) + sum(given_up.values()) == 5
        assert 0 not in [number for _, number in got]


def test_a_node_that_is_killed_holds_nobody_up_and_comes_back_under_another_number(nodes: FarNodes) -> None:
    with ExitStack() as stack:
        talk = Talk(nodes, stack, LONG)
        talk.ask(range(10))
        former = nodes.status("b")["slot"]
        nodes.nodes["b"].kill()
        for number in range(10, 30):
            _publish(talk.asker, f"{LONG}/question", number, qos=0)
        heard = talk.heard(10 + 20)
        while ("question", 29) not in heard:  # answers may have been on their way out of the node that died
            heard += talk.heard(1)
        assert [n for kind, n in heard if kind == "question"] == [*range(30)]
        assert violations(heard) == 0
        nodes.start("b")
        wait_for(lambda: nodes.nodes["b"].log.count("has joined cluster") == 2, "b to join again", SECONDS)
        talk.meet(stack)
        assert nodes.status("b")["slot"] != former
        talk.ask(range(100, 110))
        heard = talk.heard(20)
        assert violations(heard) == 0
        assert len(heard) == 20


def test_a_skewed_clock_widens_the_margin_and_a_hopeless_one_is_refused(nodes: FarNodes) -> None:
    nodes.nodes["b"].kill()
    joined = nodes.nodes["b"].log.count("has joined cluster")
    nodes.start("b", clock_offset_ms=3000.0)
    wait_for(lambda: nodes.nodes["b"].log.count("has joined cluster") > joined, "b to join again", SECONDS)
    for name in "abc":
        refused = f"REFUSED: causal group {BRIEF}/# with node {'b' if name != 'b' else 'a'}"
        wait_for(lambda name=name, refused=refused: refused in nodes.nodes[name].log, f"{name} to refuse", SECONDS)
        nodes.wait_status(name, f"{name} to widen its margin", LONG, "margin_ms", at_least=3000)
        assert f"REFUSED: causal group {LONG}" not in nodes.nodes[name].log
    with ExitStack() as stack:
        ordered, refused_one = Talk(nodes, stack, LONG), Talk(nodes, stack, BRIEF)
        for talk in (ordered, refused_one):
            talk.ask(range(20))
        heard = ordered.heard(40)
        assert violations(heard) == 0
        assert violations(refused_one.heard(40)) > 0, "they go as ordinary messages"
