"""What Prometheus gets is what the page says, and what the broker did."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import re
import socket
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.peers import default_plugins
from broker_plugins.cluster.options import ClusterCounters
from broker_plugins.prometheus import GAUGES, MAX_HEAD_BYTES
from tests.brokers import ALLOW_ANONYMOUS, free_port, locus
from tests.mqtt_wire import connect, publish, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]
PROMETHEUS = "broker_plugins.prometheus.PrometheusPlugin"


def ask(port: int, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, answer.headers["Content-Type"], body


def values(body: str) -> dict[str, float]:
    return {sample.name: sample.value for family in text_string_to_metric_families(body) for sample in family.samples}


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[int, int]]:
    port = free_port()
    with locus(plugins={**default_plugins(), PROMETHEUS: {"port": port}}) as broker:
        yield broker.port, port


def reference() -> object:
    path = REPOSITORY / "scripts" / "metrics_reference.py"
    spec = importlib.util.spec_from_file_location("metrics_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_written_from_the_code() -> None:
    module = reference()
    assert module.PAGE.read_text() == module.page(), "run: python scripts/metrics_reference.py"


def test_the_page_and_the_endpoint_name_the_same_metrics(running: tuple[int, int]) -> None:
    page = (REPOSITORY / "docs/reference/metrics.md").read_text()
    named = re.findall(r"^\| `(locus_\w+)` \| (counter|gauge) \|", page, re.MULTILINE)
    families = list(text_string_to_metric_families(ask(running[1])[2]))
    served = [(sample.name, family.type) for family in families for sample in family.samples]
    assert sorted(named) == sorted(served)
    assert len({name for name, _ in served}) == len(served)


def test_gauges_are_fields_that_plugins_have(running: tuple[int, int]) -> None:
    served = values(ask(running[1])[2])
    for plugin, names in GAUGES.items():
        if plugin == "cluster":  # this broker is no node of one
            assert names <= {field.name for field in fields(ClusterCounters)}
            continue
        assert {f"locus_{plugin}_{name}" for name in names} <= set(served)


def test_numbers_are_what_clients_did(running: tuple[int, int]) -> None:
    wait_for(lambda: values(ask(running[1])[2])["locus_connections_open"] == 0, "the clients of other tests to be gone")
    before = values(ask(running[1])[2])
    with connect(running[0], "reader") as reader, connect(running[0], "writer") as writer:
        reader.subscribe(("m/#", 0))
        for number in range(5):
            writer.send(publish(f"m/{number}", b"x", retain=number == 0))
        writer.messages_until_ping()
        assert len(reader.messages_until_ping()) == 5
        after = values(ask(running[1])[2])
    change = {name: after[name] - before[name] for name in after}
    assert change["locus_connections_total"] == 2
    assert change["locus_connections_open"] == 2
    assert change["locus_sessions"] == 2
    assert change["locus_subscriptions"] == 1
    assert change["locus_deliveries_total"] == 5
    assert change["locus_messages_received_total"] >= 5
    assert change["locus_retained_messages"] >= 1


def test_open_metrics_for_those_who_ask_for_it(running: tuple[int, int]) -> None:
    status, kind, body = ask(running[1], Accept="application/openmetrics-text; version=1.0.0")
    assert status == 200
    assert kind.startswith("application/openmetrics-text")
    assert {family.name for family in open_metrics(body)} >= {"locus_messages_received", "locus_sessions"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/metrics?x=1", 200), ("HEAD", "/metrics", 200), ("POST", "/metrics", 405)],
)
def test_other_requests_are_answered_too(running: tuple[int, int], method: str, path: str, status: int) -> None:
    assert ask(running[1], path, method)[0] == status


def test_who_sends_no_request_does_not_keep_others_from_it(running: tuple[int, int]) -> None:
    with (
        socket.create_connection(("127.0.0.1", running[1])),
        socket.create_connection(("127.0.0.1", running[1])) as bad,
    ):
        bad.sendall(b"x" * (MAX_HEAD_BYTES * 4))
        assert ask(running[1])[0] == 200
        bad.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert bad.recv(1) == b""


def test_a_port_that_is_taken_is_no_reason_not_to_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with locus(plugins={**ALLOW_ANONYMOUS, PROMETHEUS: {"port": port}}) as broker:
            with connect(broker.port, "a") as client:
                assert client.messages_until_ping() == []
            assert f"no metrics for Prometheus: 127.0.0.1:{port} cannot be used" in broker.log
