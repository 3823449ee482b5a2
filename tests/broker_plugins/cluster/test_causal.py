"""Causal groups over three NATS servers of which two reach each other slowly: answers overtake questions, or do not."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import urllib.request
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
SLOW_S = 0.4
NEAR_S = 0.02
LONG, BRIEF = "av", "brief"
PROMETHEUS = "broker_plugins.prometheus.PrometheusPlugin"
DROPS = ("causal_late", "causal_outlived", "causal_stalled")
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
        plugins = {ANONYMOUS: {"allow_anonymous": True}, GEO: {}, RANKED: {}, PROMETHEUS: {"port": 0}, CLUSTER: options}
        self.nodes[name] = self._stack.enter_context(locus(plugins=plugins, port=port, directory=directory))
        return self.nodes[name]

    @contextlib.contextmanager
    def slow(self, delay_s: float = SLOW_S) -> Iterator[None]:
        """Let it take longer for a while; what is on its way then keeps its place."""
        self.network.delay_s = delay_s
        try:
            yield
        finally:
            self.network.delay_s = NEAR_S

    def status(self, name: str) -> dict[str, Any]:
        """What a node says of its causal groups, by filter, with its seat and what it knows of clocks."""
        with connect(self.port(name), f"status-{name}") as wire:
            wire.subscribe(("$SYS/broker/locus/causal", 0))
            said: dict[str, Any] = json.loads(wire.messages(1, SECONDS)[0].payload)
        return said | {group["filter"].partition("/")[0]: group for group in said["groups"]}

    def count(self, name: str, counter: str) -> int:
        """What a node has counted; told by itself, whatever happens between the nodes."""
        (address,) = set(re.findall(r"metrics for Prometheus at (http://\S+)", self.nodes[name].log)[-1:])
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:
            found = re.search(rf"^locus_cluster_{counter}(?:_total)? (\S+)$", answer.read().decode(), re.MULTILINE)
        assert found is not None, counter
        return int(float(found[1]))

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
        made.network.delay_s = NEAR_S
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
        with nodes.slow():
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
        with nodes.slow():
            talk.ask(range(2), qos=1)
            for number in range(2, 4):
                _publish(talk.asker, f"{LONG}/question", number, qos=1)
                talk.next(talk.answerer, 1)
                _publish(talk.answerer, f"{LONG}/answer", number, qos=0)
            heard = talk.heard(8)
        assert sorted(n for _, n in heard) == sorted([*range(4)] * 2)
        assert violations(heard) == 0


def test_what_a_client_heard_comes_first_also_after_it_moved(nodes: FarNodes) -> None:
    with ExitStack() as stack:
        talk = Talk(nodes, stack, LONG)
        for number in range(2):
            with nodes.slow():
                _publish(talk.asker, f"{LONG}/question", number, qos=1)
                talk.next(talk.answerer, 1)
            with connect(nodes.port("c"), f"answerer-{LONG}") as moved:
                talk.answerer.wait_until_closed(SECONDS)
                moved.send(publish(f"{LONG}/answer", str(number).encode()))
                moved.messages_until_ping(SECONDS)
            assert talk.heard(2) == [("question", number), ("answer", number)]
            talk.meet(stack)


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
        with nodes.slow():
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
    with nodes.slow(0.2):
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
        before = {counter: nodes.count("c", counter) for counter in DROPS}
        with nodes.slow(4 * BRIEF_S):
            for number in range(5):
                talk.asker.send(publish(f"{BRIEF}/question", str(number).encode()))
                talk.next(talk.answerer, 1)
                clause = "/@ttl:50ms" if number == 0 else ""  # it does not wait for its question longer than that
                talk.answerer.send(publish(f"{BRIEF}/answer{clause}", str(number).encode()))
            late = before["causal_late"] + 5
            wait_for(lambda: nodes.count("c", "causal_late") >= late, "the questions to come, late", SECONDS)
        dropped = {counter: nodes.count("c", counter) - before[counter] for counter in DROPS}
        rest = talk.listener.messages_until_ping(SECONDS)
        got = [(each.topic, int(each.payload)) for each in rest if not each.topic.endswith("probe")]
        assert {topic for topic, _ in got} <= {f"{BRIEF}/answer"}
        assert [number for _, number in got] == sorted(number for _, number in got)
        assert 0 not in [number for _, number in got]
        # A machine that is too busy may miss a moment, or an answer may take too long on it: dropped, and counted.
        assert len(got) + sum(dropped.values()) == 5 + 5


def test_a_node_that_is_killed_holds_nobody_up_and_comes_back_under_another_number(nodes: FarNodes) -> None:
    with ExitStack() as stack:
        talk = Talk(nodes, stack, LONG)
        with nodes.slow():
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
        with nodes.slow():
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
        with nodes.slow():
            for talk in (ordered, refused_one):
                talk.ask(range(20))
        heard = ordered.heard(40)
        assert violations(heard) == 0
        assert violations(refused_one.heard(40)) > 0, "they go as ordinary messages"
