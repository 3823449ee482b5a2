"""Messages for the best receivers of a whole cluster, over real sockets and a real fabric."""

from __future__ import annotations

import json
import random
import signal
import time
from contextlib import ExitStack, suppress

import pytest

from tests.broker_plugins.cluster.nodes import RANKED, Cluster, cluster
from tests.mqtt_wire import DISCONNECT, Kind, Silence, Wire, connect, publish

pytestmark = pytest.mark.xdist_group("cluster-top")

DOMAINS = {"age": [0, 100], "pay": [0, 1000]}
TOPICS = {"best/#": {"attributes": DOMAINS, "top": 2}, "#": {"attributes": DOMAINS}}
BOUND_S = 60.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory):
    ranked = {RANKED: {"topics": TOPICS, "name_receivers": True}}
    with cluster(tmp_path_factory.mktemp("top"), "a", "b", "c", plugins=ranked) as made:
        yield made
        for name, node in made.nodes.items():
            assert "Traceback" not in node.log, f"{name}: {node.log[-3000:]}"


class Crowd:
    """Clients on all nodes; each also hears a marker that follows what was published."""

    def __init__(self, nodes: Cluster, stack: ExitStack, topic: str) -> None:
        self._nodes = nodes
        self._stack = stack
        self.topic = topic
        self.wires: dict[str, Wire] = {}
        self.publishers: dict[str, Wire] = {}
        self._ids = dict.fromkeys("abc", 0)
        self._probes = 0

    def client(self, node: str, name: str, *filters: tuple[str, int], clean: bool = True) -> Wire:
        wire = self._stack.enter_context(connect(self._nodes.port(node), name, clean=clean))
        wire.subscribe((f"end/{self.topic}", 1))
        for each in filters:
            time.sleep(0.004)  # ages are told apart by the millisecond
            wire.subscribe(each)
        self.wires[name] = wire
        return wire

    def ready(self) -> None:
        """Every node knows what the others want."""
        for node in "abc" if not self.publishers else "":
            self.publishers[node] = self._stack.enter_context(
                connect(self._nodes.port(node), f"publisher-{self.topic}-{node}")
            )
        for node in self.publishers:
            self._wait_heard(node)
        for wire in self.wires.values():
            wire.messages_until_ping()

    def _wait_heard(self, node: str) -> None:
        deaf = dict(self.wires)
        deadline = time.monotonic() + BOUND_S
        self._probes += 1
        token = f"probe {node} {self._probes}".encode()
        while deaf:
            assert time.monotonic() < deadline, f"{sorted(deaf)} do not hear node {node}"
            self.publishers[node].send(publish(f"end/{self.topic}", token))
            for name, wire in list(deaf.items()):
                with suppress(Silence):
                    while wire.messages(1, 0.5)[0].payload != token:
                        pass
                    del deaf[name]

    def publish(self, node: str, clauses: str, payload: dict[str, object], qos: int) -> None:
        wire = self.publishers[node]
        self._ids[node] += 1
        wire.send(publish(self.topic + clauses, json.dumps(payload).encode(), qos=qos, packet_id=self._ids[node]))
        if qos:
            wire.expect(Kind.PUBACK, BOUND_S)

    def heard(self, node: str, qos: int) -> dict[str, list[int]]:
        """What each client has got of what was published on a node."""
        self.publish(node, "/@top:1", {"n": -1, "age": -1, "pay": -1}, 1)  # acknowledged when all before it are out
        wire = self.publishers[node]
        self._ids[node] += 1
        end = f"end {self._ids[node]}".encode()
        wire.send(publish(f"end/{self.topic}", end, qos=qos, packet_id=self._ids[node]))
        if qos:
            wire.expect(Kind.PUBACK, BOUND_S)
        found: dict[str, list[int]] = {}
        for name, each in self.wires.items():
            found[name] = []
            while (message := each.messages(1, BOUND_S)[0]).payload != end:
                if not message.payload.startswith((b"probe", b"end")):
                    found[name].append(json.loads(message.payload)["n"])
            found[name] = [number for number in found[name] if number >= 0]
        return found


@pytest.mark.parametrize("qos", [0, 1])
def test_the_k_best_of_all_nodes_get_it_with_ties_by_age(nodes: Cluster, qos: int) -> None:
    rng = random.Random(11 + qos)
    topic = f"jobs/{qos}"
    with ExitStack() as stack:
        crowd = Crowd(nodes, stack, topic)
        subscriptions: list[tuple[float, int, str, dict[str, tuple[float, float]]]] = []
        for number in range(12):
            name = f"best-{qos}-{number}"
            filters = []
            for _ in range(rng.randint(1, 2)):
                box = {}
                for attribute, (_, high) in DOMAINS.items():
                    if rng.random() < 0.7:
                        low = rng.choice([0, 0.2, 0.4]) * high
                        box[attribute] = (low, low + rng.choice([0.2, 0.5]) * high)
                accuracy = 1.0
                for attribute, (low, high) in box.items():
                    accuracy *= (high - low) / DOMAINS[attribute][1]
                said = ",".join(f"{name}={low}..{high}" for name, (low, high) in box.items())
                text = f"$where/{said}/{topic}" if box else topic
                if text in [each for each, _ in filters]:
                    continue
                filters.append((text, 1))
                subscriptions.append((round(accuracy, 9), len(subscriptions), name, box))
            crowd.client("abc"[number % 3], name, *filters)
        crowd.ready()
        for round_number in range(4):
            node = "abc"[round_number % 3]
            expected: dict[str, list[int]] = {name: [] for name in crowd.wires}
            for number in range(15):
                payload = {"n": number, "age": rng.randint(0, 100), "pay": rng.randint(0, 1000)}
                top = rng.randint(1, 5)
                crowd.publish(node, f"/@top:{top}", payload, qos)
                matching = sorted(
                    each
                    for each in subscriptions
                    if all(low <= payload[a] <= high for a, (low, high) in each[3].items())
                )
                for name in list(dict.fromkeys(name for _, _, name, _ in matching))[:top]:
                    expected[name].append(number)
            assert crowd.heard(node, qos) == expected


def test_a_rule_cuts_over_all_nodes_and_messages_stay_in_order(nodes: Cluster) -> None:
    with ExitStack() as stack:
        crowd = Crowd(nodes, stack, "best/1")
        for number, node in enumerate("cba"):
            crowd.client(node, f"rule-{node}", (f"$where/age=0..{10 + number}/best/1", 1))
        crowd.ready()
        wire = crowd.publishers["a"]
        wire.send(*(publish("best/1", json.dumps({"n": n, "age": 5}).encode()) for n in range(100)))
        assert crowd.heard("a", 0) == {"rule-c": [*range(100)], "rule-b": [*range(100)], "rule-a": []}


def test_a_message_without_top_waits_behind_one_with_it(nodes: Cluster) -> None:
    with ExitStack() as stack:
        crowd = Crowd(nodes, stack, "queue/1")
        crowd.client("a", "queue-a", ("$where/age=0..5/queue/1", 1))
        crowd.client("b", "queue-b", ("$where/age=0..10/queue/1", 1))
        crowd.ready()
        wire = crowd.publishers["a"]
        packets = []
        for number in range(60):
            clauses = "/@top:1" if number % 3 == 0 else ""
            packets.append(publish("queue/1" + clauses, json.dumps({"n": number, "age": 3}).encode()))
        wire.send(*packets)
        others = [number for number in range(60) if number % 3]
        assert crowd.heard("a", 0) == {"queue-a": [*range(60)], "queue-b": others}


def test_a_receipt_ranks_receivers_of_all_nodes(nodes: Cluster) -> None:
    with ExitStack() as stack:
        crowd = Crowd(nodes, stack, "receipt/1")
        crowd.client("a", "receipt-a", ("$where/age=0..50/receipt/1", 1))
        crowd.client("b", "receipt-b", ("$where/age=0..10/receipt/1", 1))
        crowd.client("c", "receipt-c", ("$where/age=0..20/receipt/1", 1), ("receipt/1", 1))
        crowd.ready()
        asker = crowd.publishers["a"]
        asker.subscribe(("answers/+", 0))
        for clauses, names in (
            ("top:2;reply:answers/1", ["receipt-b", "receipt-c"]),
            ("reply:answers/2", ["receipt-b", "receipt-c", "receipt-a"]),
        ):
            asker.send(publish(f"receipt/1/@{clauses}", b'{"n":1,"age":3}'))
            answer = json.loads(asker.messages(1, BOUND_S)[0].payload)
            assert answer["count"] == len(names)
            assert [each["client"] for each in answer["receivers"]] == names
            assert [each["rank"] for each in answer["receivers"]] == [*range(1, len(names) + 1)]
            heard = crowd.heard("a", 0)
            assert {name for name, got in heard.items() if got == [1]} == set(names)
            assert all(got in ([], [1]) for got in heard.values())


def test_a_shared_group_is_one_receiver_in_the_whole_cluster(nodes: Cluster) -> None:
    with ExitStack() as stack:
        crowd = Crowd(nodes, stack, "group/1")
        for node in "abc":
            crowd.client(node, f"group-{node}", ("$share/g/$where/age=0..5/group/1", 1))
        crowd.client("b", "group-second", ("$where/age=0..10/group/1", 1))
        crowd.client("c", "group-third", ("$where/age=0..20/group/1", 1))
        crowd.ready()
        for number in range(30):
            crowd.publish("a", "/@top:2", {"n": number, "age": 3}, 1)
        heard = crowd.heard("a", 1)
        assert heard["group-second"] == [*range(30)]
        assert heard["group-third"] == []
        shares = [heard[f"group-{node}"] for node in "abc"]
        assert sorted(number for share in shares for number in share) == [*range(30)]
        assert all(shares)


def test_who_is_away_with_a_persistent_session_is_a_receiver_of_qos_1(nodes: Cluster) -> None:
    with ExitStack() as stack:
        crowd = Crowd(nodes, stack, "away/1")
        away = crowd.client("b", "away-b", ("$where/age=0..5/away/1", 1), clean=False)
        crowd.client("c", "away-c", ("$where/age=0..10/away/1", 1))
        crowd.ready()
        away.send(DISCONNECT)
        away.wait_until_closed()
        del crowd.wires["away-b"]
        crowd.publish("a", "/@top:1", {"n": 1, "age": 3}, 1)
        crowd.publish("a", "/@top:1", {"n": 2, "age": 3}, 0)  # nothing of QoS 0 waits for it
        crowd.publish("a", "/@top:1", {"n": 3, "age": 3}, 1)
        heard = crowd.heard("a", 0)["away-c"]
        assert heard == [2]
        with connect(nodes.port("b"), "away-b", clean=False) as back:
            assert [json.loads(each.payload)["n"] for each in back.messages(2, BOUND_S)] == [1, 3]


def test_retained_messages_for_the_best_are_retained_everywhere(nodes: Cluster) -> None:
    with ExitStack() as stack:
        crowd = Crowd(nodes, stack, "kept/1")
        crowd.client("a", "kept-a", ("$where/age=0..5/kept/1", 1))
        crowd.client("b", "kept-b", ("$where/age=0..10/kept/1", 1))
        crowd.ready()
        wire = crowd.publishers["c"]
        wire.send(publish("kept/1/@top:1", b'{"n":1,"age":3}', qos=1, packet_id=77, retain=True))
        wire.expect(Kind.PUBACK, BOUND_S)
        assert crowd.heard("c", 1) == {"kept-a": [1], "kept-b": []}
        for node in "abc":
            with connect(nodes.port(node), f"kept-late-{node}") as late:
                late.subscribe(("kept/1", 1))
                got = late.messages(1, BOUND_S)[0]
                assert got.retain
                assert got.payload == b'{"n":1,"age":3}'


def test_a_session_that_moves_keeps_the_age_of_its_subscriptions(nodes: Cluster) -> None:
    with ExitStack() as stack:
        crowd = Crowd(nodes, stack, "moved/1")
        text = "$where/age=0..5/moved/1"
        old = crowd.client("a", "moved-old", (text, 1), clean=False)
        crowd.client("c", "moved-young", (text, 1))
        old.send(DISCONNECT)
        old.wait_until_closed()
        crowd.wires["moved-old"] = stack.enter_context(connect(nodes.port("b"), "moved-old", clean=False))
        crowd.ready()
        for number, node in enumerate("abc"):
            crowd.publish(node, "/@top:1", {"n": number, "age": 3}, 1)
            assert crowd.heard(node, 1) == {"moved-old": [number], "moved-young": []}


def test_who_sits_on_a_node_that_does_not_answer_is_left_out(nodes: Cluster) -> None:
    with ExitStack() as stack:
        crowd = Crowd(nodes, stack, "silent/1")
        crowd.client("c", "silent-c", ("$where/age=0..5/silent/1", 1))
        crowd.client("b", "silent-b", ("$where/age=0..10/silent/1", 1))
        crowd.client("a", "silent-a", ("$where/age=0..20/silent/1", 1))
        crowd.ready()
        paused = nodes.nodes["c"].process
        paused.send_signal(signal.SIGSTOP)
        try:
            crowd.publish("a", "/@top:1", {"n": 1, "age": 3}, 1)
            message = crowd.wires["silent-b"].messages(1, BOUND_S)[0]
            assert json.loads(message.payload)["n"] == 1
        finally:
            paused.send_signal(signal.SIGCONT)
        crowd.ready()
        crowd.publish("a", "/@top:1", {"n": 2, "age": 3}, 1)
        assert crowd.heard("a", 1) == {"silent-c": [2], "silent-b": [], "silent-a": []}
