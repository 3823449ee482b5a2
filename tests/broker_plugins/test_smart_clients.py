"""Smart subscriptions as clients that know nothing of them say them: paho-mqtt, mosquitto_sub and mosquitto_pub."""

from __future__ import annotations

import itertools
import json
import queue
import subprocess
from typing import TYPE_CHECKING

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from tests.broker_plugins.smart import SQUARE, plugins
from tests.brokers import RunningBroker, locus, needs_mosquitto
from tests.mqtt_wire import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from paho.mqtt.reasoncodes import ReasonCode

numbers = itertools.count()
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with locus(plugins=plugins(ranked={"topics": {"#": {"attributes": {"v": [0, 100]}}}})) as running:
        yield running


class Paho:
    """A subscriber and a publisher on paho-mqtt."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._clients: list[Client] = []
        self._publisher = self._client()

    def _client(self) -> Client:
        client = Client(CallbackAPIVersion.VERSION2)
        client.connect("127.0.0.1", self._port)
        client.loop_start()
        self._clients.append(client)
        return client

    def subscribe(self, text: str) -> Client:
        client = self._client()
        granted: queue.Queue[list[ReasonCode]] = queue.Queue()
        arrived: queue.Queue[tuple[str, str]] = queue.Queue()
        client.user_data_set(arrived)
        client.on_message = lambda _c, _d, message: arrived.put((message.topic, message.payload.decode()))
        client.on_subscribe = lambda _c, _d, _i, reasons, _p: granted.put(reasons)
        client.subscribe([(text, 1), (f"end/{id(client)}", 1)])
        reasons = granted.get(timeout=SECONDS)
        assert not any(reason.is_failure for reason in reasons)
        return client

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> None:
        self._publisher.publish(topic, payload, qos=1, retain=retain).wait_for_publish(SECONDS)

    def heard(self, client: Client) -> list[str]:
        self.publish(f"end/{id(client)}", b"")
        found = []
        arrived: queue.Queue[tuple[str, str]] = client.user_data_get()
        while (each := arrived.get(timeout=SECONDS))[0] != f"end/{id(client)}":
            found.append(each[1])
        return found

    def close(self) -> None:
        for client in self._clients:
            client.disconnect()
            client.loop_stop()


class Mosquitto:
    """mosquitto_sub as the subscriber, mosquitto_pub as the publisher."""

    def __init__(self, port: int) -> None:
        self._port = str(port)
        self._running: list[subprocess.Popen[str]] = []

    def subscribe(self, text: str) -> subprocess.Popen[str]:
        end = f"end/{next(numbers)}"
        command = ["mosquitto_sub", "-p", self._port, "-q", "1", "-d", "-F", "%t %p", "-t", text, "-t", end]
        # With -d it tells when it is subscribed, but only a line at a time if its output is a terminal.
        process = subprocess.Popen(["stdbuf", "-oL", *command], stdout=subprocess.PIPE, text=True)
        process.end = end  # type: ignore[attr-defined]
        self._running.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Subscribed"):
                assert "128" not in line
                return process
        raise AssertionError("mosquitto_sub ended before it was subscribed")

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> None:
        options = ["-r"] if retain else []
        command = ["mosquitto_pub", "-p", self._port, "-q", "1", "-t", topic, "-s", *options]
        subprocess.run(command, input=payload, check=True, timeout=SECONDS)

    def heard(self, process: subprocess.Popen[str]) -> list[str]:
        self.publish(process.end, b"x")  # type: ignore[attr-defined]
        found = []
        assert process.stdout is not None
        for line in process.stdout:
            topic, _, payload = line.rstrip("\n").partition(" ")
            if topic == process.end:  # type: ignore[attr-defined]
                return found
            if topic != "Client":  # what mosquitto_sub -d says of itself
                found.append(payload)
        raise AssertionError("mosquitto_sub ended")

    def close(self) -> None:
        for process in self._running:
            process.terminate()
            process.wait()


@pytest.fixture(params=[Paho, pytest.param(Mosquitto, marks=needs_mosquitto)])
def clients(request: pytest.FixtureRequest, broker: RunningBroker) -> Iterator[Paho | Mosquitto]:
    made = request.param(broker.port)
    yield made
    made.close()


IN, OUT = "/@at:0.5,0.5", "/@at:5,5"
STORIES = {
    "bbox": (
        "$geo/bbox:0,0,1,1/{t}/#",
        [("{t}/a" + IN, "in"), ("{t}/a" + OUT, "out"), ("other" + IN, "other")],
        ["in"],
    ),
    "circle": ("$geo/circle:0.5,0.5,9km/{t}/+", [("{t}/a" + OUT, "out"), ("{t}/a" + IN, "in")], ["in"]),
    "cell": ("$geo/cell:s00/{t}", [("{t}" + IN, "in"), ("{t}" + OUT, "out")], ["in"]),
    "fence": ("$geo/fence:clients/{t}", [("{t}" + IN, "in"), ("{t}" + OUT, "out")], ["in"]),
    "enter": ("$geo/bbox:0,0,1,1;detect=enter/{t}", [("{t}" + p, p) for p in (OUT, IN, IN, OUT)], [IN]),
    "exit": ("$geo/bbox:0,0,1,1;detect=exit/{t}", [("{t}" + p, p) for p in (OUT, IN, IN, OUT)], [OUT]),
    "payload": (
        "$geo/bbox:0,0,1,1/{t}",
        [("{t}", '{"lon": 0.5, "lat": 0.5}'), ("{t}", '{"lon": 5, "lat": 5}'), ("{t}", "no place")],
        ['{"lon": 0.5, "lat": 0.5}'],
    ),
    "where": ("$where/v=1..2,w.x>0/{t}", [("{t}", '{"v":1,"w":{"x":1}}'), ("{t}", '{"v":3}')], ['{"v":1,"w":{"x":1}}']),
    "both": (
        "$where/v>5/$geo/bbox:0,0,1,1/{t}",
        [("{t}" + IN, '{"v":6}'), ("{t}" + IN, '{"v":4}'), ("{t}" + OUT, '{"v":6}')],
        ['{"v":6}'],
    ),
    "shared": ("$share/g{t}/$geo/bbox:0,0,1,1/{t}", [("{t}" + IN, "in"), ("{t}" + OUT, "out")], ["in"]),
}


@pytest.mark.parametrize("story", STORIES)
def test_a_plain_client_hears_what_it_asked_for(story, clients) -> None:
    text, messages, expected = STORIES[story]
    topic = f"{story}{next(numbers)}"
    clients.publish("locus/fence/clients", SQUARE, retain=True)
    client = clients.subscribe(text.replace("{t}", topic))
    for where, payload in messages:
        clients.publish(where.replace("{t}", topic), payload.encode())
    assert clients.heard(client) == expected


def test_retained_messages_come_where_they_match(clients) -> None:
    topic = f"retained{next(numbers)}"
    for name, where, value in (("a", IN, 1), ("b", OUT, 1), ("c", IN, 9)):
        clients.publish(f"{topic}/{name}{where}", json.dumps({"v": value, "n": name}).encode(), retain=True)
    client = clients.subscribe(f"$geo/bbox:0,0,1,1/$where/v<5/{topic}/#")
    assert [json.loads(each)["n"] for each in clients.heard(client)] == ["a"]


def test_the_best_gets_it_and_the_publisher_a_receipt(clients) -> None:
    topic = f"best{next(numbers)}"
    receipts = clients.subscribe(f"receipts/{topic}")
    wide = clients.subscribe(f"$where/v=0..50/{topic}")
    narrow = clients.subscribe(f"$where/v=0..10/{topic}")
    clients.publish(f"{topic}/@top:1;reply:receipts/{topic}", b'{"v":5}')
    assert clients.heard(wide) == []
    assert clients.heard(narrow) == ['{"v":5}']
    [receipt] = clients.heard(receipts)
    expected = {"topic": topic, "count": 1, "receivers": [{"rank": 1, "accuracy": 0.1}]}
    assert json.loads(receipt) == expected
