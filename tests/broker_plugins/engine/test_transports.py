"""TCP, TLS and WebSocket with the clients people use: paho-mqtt and Mosquitto's."""

from __future__ import annotations

import queue
import shutil
import ssl
import subprocess
from typing import TYPE_CHECKING

import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from tests.brokers import RunningBroker, free_port, locus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

needs_clients = pytest.mark.skipif(
    shutil.which("mosquitto_sub") is None, reason="mosquitto_sub is missing: apt-get install mosquitto-clients"
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("tls")
    key, certificate = directory / "key.pem", directory / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return key, certificate


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in ("tls", "ws", "wss")}


@pytest.fixture(scope="module")
def broker(certificate: tuple[Path, Path], ports: dict[str, int]) -> Iterator[RunningBroker]:
    key, cert = certificate
    tls = {"ssl": True, "certfile": str(cert), "keyfile": str(key)}
    listeners = {
        "tls": {"type": "tcp", "bind": f"127.0.0.1:{ports['tls']}", **tls},
        "ws": {"type": "ws", "bind": f"127.0.0.1:{ports['ws']}"},
        "wss": {"type": "ws", "bind": f"127.0.0.1:{ports['wss']}", **tls},
    }
    with locus(listeners=listeners) as running:
        yield running


@pytest.mark.parametrize("kind", ["tcp", "tls", "ws", "wss"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_paho_over_every_transport(
    broker: RunningBroker, ports: dict[str, int], certificate: tuple[Path, Path], kind: str, qos: int
) -> None:
    received: queue.Queue[tuple[str, bytes, int]] = queue.Queue()
    subscribed: queue.Queue[object] = queue.Queue()
    transport = "websockets" if kind.startswith("ws") else "tcp"
    client = paho.Client(CallbackAPIVersion.VERSION2, f"paho-{kind}-{qos}", transport=transport)
    if kind in ("tls", "wss"):
        client.tls_set(str(certificate[1]), tls_version=ssl.PROTOCOL_TLS_CLIENT)
    client.on_message = lambda _c, _u, message: received.put((message.topic, message.payload, message.qos))
    client.on_subscribe = lambda *arguments: subscribed.put(arguments)
    client.connect("127.0.0.1", broker.port if kind == "tcp" else ports[kind])
    client.loop_start()
    try:
        client.subscribe(f"{kind}/{qos}/#", qos)
        subscribed.get(timeout=10)
        payloads = [b"%d" % at for at in range(100)] + [bytes(200_000)]
        for payload in payloads:
            client.publish(f"{kind}/{qos}/x", payload, qos)
        found = [received.get(timeout=20) for _ in payloads]
    finally:
        client.disconnect()
        client.loop_stop()
    assert found == [(f"{kind}/{qos}/x", payload, qos) for payload in payloads]


@needs_clients
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mosquitto_clients(broker: RunningBroker, qos: int) -> None:
    port, topic = str(broker.port), f"mosquitto/{qos}"
    common = ["-p", port, "-q", str(qos), "-V", "mqttv311"]
    subscriber = subprocess.Popen(
        ["stdbuf", "-oL", "mosquitto_sub", *common, "-t", f"{topic}/#", "-v", "-C", "3", "-W", "20", "-d"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert subscriber.stdout is not None
    for line in subscriber.stdout:
        if line.startswith("Subscribed"):
            break
    for at in range(3):
        publish = ["mosquitto_pub", *common, "-t", f"{topic}/{at}", "-m", f"message {at}"]
        subprocess.run(publish, check=True, timeout=20)
    lines = [line.strip() for line in subscriber.stdout if line.startswith("mosquitto/")]
    assert subscriber.wait(20) == 0
    assert lines == [f"{topic}/{at} message {at}" for at in range(3)]


@needs_clients
def test_mosquitto_clients_over_tls(
    broker: RunningBroker, ports: dict[str, int], certificate: tuple[Path, Path]
) -> None:
    common = ["-p", str(ports["tls"]), "--cafile", str(certificate[1]), "-h", "localhost"]
    subprocess.run(
        ["mosquitto_pub", *common, "-t", "tls/kept", "-m", "secret", "-r", "-q", "1"], check=True, timeout=20
    )
    shown = subprocess.run(
        ["mosquitto_sub", *common, "-t", "tls/kept", "-C", "1", "-W", "20"],
        check=True,
        timeout=30,
        capture_output=True,
        text=True,
    )
    assert shown.stdout == "secret\n"


def test_a_websocket_needs_the_mqtt_subprotocol_and_binary_frames(ports: dict[str, int], broker: RunningBroker) -> None:
    from websockets.exceptions import ConnectionClosed, InvalidStatus
    from websockets.sync.client import connect
    from websockets.typing import Subprotocol

    from tests.mqtt_wire import PINGREQ, connect_packet

    address = f"ws://127.0.0.1:{ports['ws']}"
    with pytest.raises(InvalidStatus):
        connect(address, proxy=None)
    with connect(address, subprotocols=[Subprotocol("mqtt")], proxy=None) as websocket:
        data = connect_packet("by frames") + PINGREQ
        for at in range(0, len(data), 3):  # a packet may span frames [MQTT-6.0.0-2]
            websocket.send(data[at : at + 3])
        answer = b""
        while len(answer) < 6:
            answer += websocket.recv(timeout=10)
        assert answer == b"\x20\x02\x00\x00\xd0\x00"
        websocket.send("text")  # [MQTT-6.0.0-1]
        with pytest.raises(ConnectionClosed):
            websocket.recv(timeout=10)
