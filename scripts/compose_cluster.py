"""Brings docker-compose.yml up from nothing, lets clients talk and roam, kills a broker and a NATS server, and looks.

    make test-compose        needs a Docker engine and docker-compose (v2 or 1.29); takes some minutes

Prints what happened, the transcript of docs/cluster.md, each line with the seconds since the beginning, and fails where
something was lost, doubled or out of order, a container is not healthy, or something is left when all is taken down.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from http.cookiejar import CookieJar
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from clients import RoamingClient  # noqa: E402  the repository is not a package
from tests.mqtt_wire import DISCONNECT, Wire, connect, publish, wait_for  # noqa: E402

PORTS = (1883, 1884, 1885)
BROKERS = {f"broker-{number}": port for number, port in enumerate(PORTS, 1)}
DASHBOARD = "http://127.0.0.1:8080"
PASSWORD = os.environ.get("LOCUS_DASHBOARD_PASSWORD", "locus-here")
IMAGES = ("python:3.11-slim-bookworm", "locus", "locus-pipeline")
COMPOSE = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
PROJECT = "locus-trial"
OF_ITS_OWN = ("-p", PROJECT)
"""Under this name no volume of somebody's own `docker-compose up` is taken down."""
PATIENCE_S = 120.0
_begun_s = time.monotonic()


def tell(what: str) -> None:
    """One line of the transcript."""
    print(f"{time.monotonic() - _begun_s:4.0f} s  {what}", flush=True)


def run(*words: str) -> str:
    """What a command prints."""
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603  ours
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def compose(*words: str) -> None:
    """Run docker-compose quietly, and say what was run."""
    tell(f"$ {' '.join((*COMPOSE, *OF_ITS_OWN, *words))}")
    run(*COMPOSE, *OF_ITS_OWN, *words)


def client(port: int) -> Wire:
    """A client with a persistent session, once the broker answers."""
    found: list[Wire] = []

    def answers() -> bool:
        try:
            found.append(connect(port, f"client-{port}", clean=False))
        except (OSError, AssertionError):
            return False
        return True

    wait_for(answers, f"the broker on port {port}", PATIENCE_S)
    return found[0]


def drained(wire: Wire) -> None:
    """Pass over what is on the way."""
    wait_for(lambda: not wire.messages_until_ping(), "silence", PATIENCE_S)


def say(wire: Wire, word: str, count: int) -> list[str]:
    """Publish and return what was said."""
    words = [f"{word} {number}" for number in range(count)]
    wire.send(*(publish("stream/1", each.encode(), qos=1, packet_id=at) for at, each in enumerate(words, 1)))
    return words


def hear(port: int, wire: Wire, words: list[str], had: Sequence[str] = ()) -> None:
    """Expect exactly this.

    A broker that was killed may not have noted the last acknowledgements of what its client `had`; as QoS 1 allows, it
    sends that again, and says that it does.
    """
    got: list[str] = []
    again = 0
    while len(got) < len(words):
        message = wire.messages(1, PATIENCE_S)[0]
        if message.dup and message.payload.decode() in had:
            again += 1
        else:
            got.append(message.payload.decode())
    assert got == words, f"port {port} got {got} instead of {words}"
    repeated = f", after {again} that it had acknowledged just before the kill" if again else ""
    tell(f"port {port}: {len(got)} messages, {got[0]!r} to {got[-1]!r}, in order, once each{repeated}")


def everybody_hears() -> dict[int, Wire]:
    """Clients on every port that hear what is said on every other."""
    wires = {port: client(port) for port in PORTS}
    for wire in wires.values():
        wire.subscribe(("stream/#", 1), ("probe/#", 0))
    for port, wire in wires.items():
        for other in PORTS:
            if other != port:

                def heard(wire: Wire = wire, sender: Wire = wires[other]) -> bool:
                    sender.send(publish("probe/1", b""))
                    return bool(wire.messages_until_ping())

                wait_for(heard, f"{other} to be heard on {port}", PATIENCE_S)
    for wire in wires.values():
        drained(wire)
    tell("every port hears every other")
    return wires


def trouble(wires: dict[int, Wire]) -> None:
    """A broker is killed, then a NATS server; the stream goes on, and who was cut off gets all of it."""
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
    compose("start", "nats-1")
    compose("rm", "-s", "-f", "broker-2")
    compose("up", "-d")  # another container, with the same volume
    wires[1884] = client(1884)
    hear(1884, wires[1884], during + without, had=before)
    after = say(wires[1885], "after", 10)
    for port, wire in wires.items():
        hear(port, wire, after)


def restart(wires: dict[int, Wire]) -> None:
    """What a broker keeps for a client that is away is there after a restart."""
    wires[1885].send(DISCONNECT)
    wires[1885].wait_until_closed()
    kept = say(wires[1883], "kept by broker-3", 20)
    hear(1883, wires[1883], kept)
    compose("restart", "broker-3")
    wires[1885] = client(1885)
    hear(1885, wires[1885], kept)


def owned() -> dict[str, tuple[float, float]]:
    """A place in a block of each broker."""
    found: dict[str, tuple[float, float]] = {}
    with connect(1883, "map") as wire:
        wire.subscribe(("$SYS/broker/locus/cluster/blocks", 0))

        def all_own() -> bool:
            for each in wire.messages_until_ping():
                found.clear()
                for block in json.loads(each.payload)["blocks"]:
                    west, south, east, north = block["box"]
                    found[block["owner"]] = ((west + east) / 2, (south + north) / 2)
            return set(found) == set(BROKERS)

        wait_for(all_own, "a block for each broker", PATIENCE_S)
    return found


def roam() -> None:
    """A roaming client on this machine is led from broker to broker, by addresses that it reaches."""
    goals = owned()
    got: list[str] = []
    with RoamingClient("127.0.0.1", PORTS[0], timeout_s=PATIENCE_S) as roaming, connect(PORTS[2], "teller") as teller:
        roaming.subscribe("roam/#", lambda message: got.append(message.text), qos=1)
        said: list[str] = []
        for broker in ("broker-2", "broker-3", "broker-1"):
            roaming.update_position(*goals[broker])

            def is_there(port: int = BROKERS[broker]) -> bool:
                said.append(str(len(said)))
                teller.send(publish("roam/1", said[-1].encode()))
                time.sleep(0.02)
                return roaming.connected and roaming.address == f"127.0.0.1:{port}"

            wait_for(is_there, f"the roaming client to be led to {broker}", PATIENCE_S)
            tell(f"a roaming client in a block of {broker} is at {roaming.address}")
        wait_for(lambda: got[-1:] == said[-1:], "the last message", PATIENCE_S)
        assert got == said, f"the roaming client got {got} instead of {said}"
        tell(f"it got {len(got)} messages at QoS 0 meanwhile, in order, once each, in {roaming.handovers} handovers")


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
    tell(f"the pipeline tells of deliveries in a minute: {told}")


def dashboard() -> None:
    """Expect the page, for who knows the password."""
    opener = build_opener(HTTPCookieProcessor(CookieJar()))
    pages: list[str] = []

    def answers() -> bool:
        try:
            with opener.open(DASHBOARD, timeout=10) as answer:
                pages.append(answer.read().decode())
        except (URLError, OSError):
            return False
        return True

    wait_for(answers, "the dashboard", PATIENCE_S)
    assert "Sign in" in pages[0], f"the dashboard shows {pages[0][:500]!r} to whoever comes"
    with opener.open(f"{DASHBOARD}/login", urlencode({"password": PASSWORD}).encode(), timeout=30) as answer:
        page = answer.read().decode()
    assert "Sign in" not in page, "the dashboard does not take its password"
    title = page.partition("<title>")[2].partition("</title>")[0]
    tell(f"{DASHBOARD} asks for the password and then shows {title!r}, {len(page)} characters")


def health() -> None:
    """Expect every container healthy, and nobody root."""
    states: dict[str, str] = {}
    mine = ("--filter", f"label=com.docker.compose.project={PROJECT}")

    def all_healthy() -> bool:
        told = run("docker", "ps", "-a", *mine, "--format", '{{.Label "com.docker.compose.service"}}\t{{.Status}}')
        states.update((service, state) for service, _, state in (line.partition("\t") for line in told.splitlines()))
        return all("(healthy)" in state for state in states.values())

    try:
        wait_for(all_healthy, "all containers to be healthy", 240)
    except AssertionError:
        sys.exit(f"not all are healthy: {states}")
    users = {run("docker", "exec", each, "id", "-u").strip() for each in run("docker", "ps", "-q", *mine).split()}
    assert users == {"1883"}, f"containers run as users {users}"
    tell(f"healthy, and none run by root: {', '.join(sorted(states))}")


def nothing_left() -> None:
    """Expect that taking all down left nothing."""
    mine = ("-q", "--filter", f"label=com.docker.compose.project={PROJECT}")
    for kind in (("ps", "-a"), ("volume", "ls"), ("network", "ls")):
        left = run("docker", *kind, *mine).split()
        assert not left, f"docker {' '.join(kind)} still shows {left}"
    tell("no container, volume or network is left")


def main() -> int:
    """Do it, and take it down again."""
    tell(run(*COMPOSE, "version").splitlines()[0])
    for image in IMAGES:
        size = int(run("docker", "image", "inspect", image, "--format", "{{.Size}}"))
        tell(f"image {image}: {size / 1e6:.0f} MB")
    compose("down", "-v")
    try:
        compose("up", "-d")
        wires = everybody_hears()
        trouble(wires)
        restart(wires)
        roam()
        metrics()
        dashboard()
        health()
    finally:
        compose("down", "-v")
    nothing_left()
    return 0


if __name__ == "__main__":
    sys.exit(main())
