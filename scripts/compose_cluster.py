"""Brings docker-compose.yml up from nothing, lets clients talk, kills a broker and a NATS server, and looks.

    make test-compose        needs a Docker engine and docker-compose (v2 or 1.29); takes about five minutes

Prints what happened, the transcript of docs/cluster.md, and fails where something was lost, doubled or out of order.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.mqtt_wire import Wire, connect, publish, wait_for  # noqa: E402  the repository is not a package

PORTS = (1883, 1884, 1885)
COMPOSE = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]


def compose(*words: str) -> None:
    """Run docker-compose quietly, and say what was run."""
    print("$ docker-compose", *words, flush=True)
    done = subprocess.run([*COMPOSE, *words], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def client(port: int) -> Wire:
    """A client with a persistent session, once the broker answers."""
    found: list[Wire] = []

    def answers() -> bool:
        try:
            found.append(connect(port, f"client-{port}", clean=False))
        except (OSError, AssertionError):
            return False
        return True

    wait_for(answers, f"the broker on port {port}", 90)
    return found[0]


def drained(wire: Wire) -> None:
    """Pass over what is on the way."""
    wait_for(lambda: not wire.messages_until_ping(), "silence", 5)


def say(wire: Wire, word: str, count: int) -> list[str]:
    """Publish and return what was said."""
    words = [f"{word} {number}" for number in range(count)]
    wire.send(*(publish("stream/1", each.encode(), qos=1, packet_id=at) for at, each in enumerate(words, 1)))
    return words


def hear(port: int, wire: Wire, words: list[str]) -> None:
    """Expect exactly this."""
    got = [each.payload.decode() for each in wire.messages(len(words), 30)]
    assert got == words, f"port {port} got {got} instead of {words}"
    print(f"port {port}: {len(got)} messages, {got[0]!r} to {got[-1]!r}, in order, once each", flush=True)


def metrics() -> None:
    """Expect what Spark makes of the brokers' telemetry, as topics of every node."""
    heard: dict[str, float] = {}
    with connect(1884, "metrics") as wire:
        wire.subscribe(("locus/metrics/+/1min", 0))

        def complete() -> bool:
            wire.send(publish("stream/1", b"tick"))
            for each in wire.messages_until_ping():
                heard[each.topic.split("/")[2]] = json.loads(each.payload)["deliveries"]
            return len(heard) == len(PORTS) and all(heard.values())

        wait_for(complete, "the pipeline's metrics of all brokers", 300)
    told = ", ".join(f"{node} {count:g}" for node, count in sorted(heard.items()))
    print(f"the pipeline tells of deliveries in a minute: {told}", flush=True)


def main() -> int:
    """Do it, and take it down again."""
    compose("down", "-v")
    try:
        compose("up", "-d")
        wires = {port: client(port) for port in PORTS}
        for wire in wires.values():
            wire.subscribe(("stream/#", 1), ("probe/#", 0))
        for port, wire in wires.items():
            for other in PORTS:
                if other != port:

                    def heard(wire: Wire = wire, sender: Wire = wires[other]) -> bool:
                        sender.send(publish("probe/1", b""))
                        return bool(wire.messages_until_ping())

                    wait_for(heard, f"{other} to be heard on {port}", 60)
        for wire in wires.values():
            drained(wire)
        print("every port hears every other", flush=True)
        before = say(wires[1883], "before", 10)
        for port, wire in wires.items():
            hear(port, wire, before)
        compose("kill", "broker-2")
        during = say(wires[1883], "broker-2 is dead", 50)
        for port in (1883, 1885):
            hear(port, wires[port], during)
        compose("kill", "nats-1")
        without = say(wires[1883], "nats-1 is dead", 50)
        for port in (1883, 1885):
            hear(port, wires[port], without)
        compose("start", "broker-2", "nats-1")
        wires[1884] = client(1884)
        hear(1884, wires[1884], during + without)
        after = say(wires[1885], "after", 10)
        for port, wire in wires.items():
            hear(port, wire, after)
        metrics()
    finally:
        compose("down", "-v")
    return 0


if __name__ == "__main__":
    sys.exit(main())
