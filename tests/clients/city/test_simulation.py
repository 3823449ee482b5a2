"""The city on a real broker: what is published has the shape that `clients.city.topics` promises."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from clients import LocusClient
from clients.city import Simulation, Town, topics
from tests.brokers import free_port, locus

BROKER = Path(__file__).parents[3] / "clients" / "demo" / "broker.yaml"
PATIENCE_S = 90.0
pytestmark = pytest.mark.xdist_group("city")


def plugins():
    chosen = yaml.safe_load(BROKER.read_text(encoding="utf-8"))["plugins"]
    chosen["broker_plugins.prometheus.PrometheusPlugin"] = {"port": 0}
    chosen["broker_plugins.telemetry.plugin.TelemetryPlugin"] = {"enabled": False}
    return chosen


@contextmanager
def living(town, *ports):
    """A city that lives in a thread."""
    stop = threading.Event()
    lines: list[str] = []
    simulation = Simulation(town, [("127.0.0.1", port) for port in ports], lines.append)
    thread = threading.Thread(target=simulation.run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield simulation, lines
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        simulation.close()


def heard(client, topic_filter, wanted=lambda said: True, below=""):
    """The first message on a topic, one that begins with the words given, that is as wanted."""
    arrived: queue.Queue = queue.Queue()
    subscription = client.subscribe(topic_filter, arrived.put, timeout_s=PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            message = arrived.get(timeout=1.0)
        except queue.Empty:
            continue
        said = json.loads(message.payload)
        if message.topic.startswith(below) and wanted(said):
            subscription.cancel(timeout_s=PATIENCE_S)
            return message.topic, said
    raise AssertionError(f"nothing as wanted on {topic_filter}")


@pytest.fixture(scope="module")
def city():
    """A client of a broker on which a city lives."""
    town = Town(3, vehicles=150, people=20, subscribers=6, workers=30)
    with (
        locus(plugins=plugins()) as broker,
        living(town, broker.port) as (_, lines),
        LocusClient(port=broker.port, timeout_s=PATIENCE_S) as client,
    ):
        yield client, town, lines


def test_the_map_is_retained(city):
    client, town, _ = city
    assert heard(client, topics.MAP)[1] == json.loads(json.dumps(town.map()))


@pytest.mark.parametrize("topic_filter", [topics.VEHICLE_POSITIONS, topics.PEOPLE_POSITIONS])
def test_everybody_tells_where_they_are(city, topic_filter):
    client, town, _ = city
    west, south, east, north = town.map()["bounds"]
    topic, said = heard(client, topic_filter)
    assert topic.split("/")[2] in {**town.vehicles, **town.people}
    assert set(said) == {"lon", "lat", "speed", "heading"}
    assert west <= said["lon"] <= east
    assert south <= said["lat"] <= north


def test_things_move(city):
    client, _, _ = city
    _, first = heard(client, "city/vehicles/v1/pos")
    heard(client, "city/vehicles/v1/pos", lambda said: said["lon"] != first["lon"] or said["lat"] != first["lat"])


def test_subscribers_receive_what_is_near_them_and_say_so(city):
    client, _, _ = city
    topic, said = heard(client, topics.SUBSCRIBER_REPORTS, lambda said: said["recent"])
    assert said["received"] >= len(said["recent"]) > 0
    assert len(said["recent"]) <= topics.RECENT
    name = topic.split("/")[2]
    if not name.startswith("watcher-"):
        assert heard(client, topics.subscriber_position(name))[1]["radius_m"] == topics.NEAR_M
    for each in said["recent"]:
        assert each["topic"].startswith(("city/vehicles/", "city/alerts/"))
        assert isinstance(each["lon"], float)


def test_watchers_hear_who_enters_a_fence(city):
    client, town, _ = city
    of_watchers = "city/subscribers/watcher-"
    topic, said = heard(client, topics.SUBSCRIBER_REPORTS, lambda said: said["recent"], of_watchers)
    assert topic.split("/")[2].removeprefix("watcher-") in {fence.name for fence in town.fences}
    assert all(each["topic"].startswith("city/vehicles/") for each in said["recent"])


def test_offers_go_to_the_best_and_receipts_name_them(city):
    client, town, _ = city
    _, receipt = heard(client, topics.RECEIPTS, lambda said: said["count"] > 1)
    assert receipt["topic"] == topics.OFFERS
    accuracies = [each["accuracy"] for each in receipt["receivers"]]
    assert accuracies == sorted(accuracies)
    assert len(accuracies) <= topics.OFFER_TOP
    assert all(each["client"].startswith("city-worker-") for each in receipt["receivers"])
    _, offer = heard(client, topics.BOARD)
    assert {"job", "lon", "lat", *topics.ATTRIBUTES} == set(offer)
    _, wishes = heard(client, topics.worker("w1"))
    assert wishes == {"client": "city-worker-1", "filter": town.workers[1].filter}


def test_sensors_are_retained_and_visitors_have_them_decided_on(city):
    client, _, _ = city
    _, said = heard(client, topics.SENSORS)
    assert set(said) == {"value", "unit", "lon", "lat", "every_s"}
    answers: queue.Queue = queue.Queue()
    client.subscribe("locus/retained/explained/city", answers.put, qos=1)
    deadline = time.monotonic() + PATIENCE_S
    decisions: list = []
    while not decisions and time.monotonic() < deadline:
        for name in ("s0", "s1", "s2"):
            question = f"locus/retained/explain/city/sensors/{name}/temperature"
            client.publish(question, None, reply="locus/retained/explained/city", qos=1)
            decisions += json.loads(answers.get(timeout=PATIENCE_S).payload)["decisions"]
    assert decisions


def test_fences_are_there(city):
    client, town, _ = city
    fence = town.fences[0]
    _, said = heard(client, topics.fence(fence.name))
    assert said["type"] == "Polygon"
    assert len(said["coordinates"][0]) == len(fence.ring) + 1


def test_alerts_say_where(city):
    client, _, _ = city
    topic, said = heard(client, topics.ALERTS)
    assert topic == f"city/alerts/{said['kind']}"
    assert {"text", "lon", "lat"} < set(said)


def test_the_city_comes_back_when_the_broker_does(tmp_path):
    port = free_port()
    town = Town(5, vehicles=10, people=2, subscribers=2, workers=2)
    with living(town, port) as (_, lines):
        _wait_for(lambda: any("no broker" in line for line in lines))
        for _ in range(2):
            with locus(plugins=plugins(), port=port, directory=tmp_path) as broker:
                with LocusClient(port=port, timeout_s=PATIENCE_S) as client:
                    heard(client, topics.VEHICLE_POSITIONS)
                    heard(client, topics.SUBSCRIBER_REPORTS)
                broker.kill()
    assert sum(line.startswith("connected to") for line in lines) == 2


def _wait_for(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_command_lives_until_it_is_interrupted():
    with locus(plugins=plugins()) as broker:
        command = [sys.executable, "-m", "clients.cli", "city", "-p", str(broker.port), "--vehicles", "5"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})
        try:
            assert process.stdout is not None
            assert "5 vehicles and 200 people" in process.stdout.readline()
            with LocusClient(port=broker.port, timeout_s=PATIENCE_S) as client:
                heard(client, topics.VEHICLE_POSITIONS)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            process.wait()


def test_a_city_without_a_size_is_refused(capsys):
    from clients.cli import main

    with pytest.raises(SystemExit):
        main(["city", "--vehicles", "-1"])
    assert "'-1' is not a number of 0 or more" in capsys.readouterr().err
