from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import yaml

from clients.demo import command
from clients.demo.plan import CLUSTER, ENGINE, PROMETHEUS, RETAINED, TELEMETRY, DemoError, planned
from tests.brokers import free_port


def plan(tmp_path, *words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return planned(parser.parse_args(list(words)), tmp_path)


def test_a_single_broker_has_all_plugins_and_no_cluster(tmp_path):
    chosen = plan(tmp_path, "--port", "2001", "--websocket-port", "2002", "--metrics-port", "2003")
    (path,) = chosen.write_configurations()
    configuration = yaml.safe_load(path.read_text())
    assert configuration["listeners"]["default"]["bind"] == "127.0.0.1:2001"
    assert configuration["listeners"]["websocket"]["bind"] == "127.0.0.1:2002"
    plugins = configuration["plugins"]
    assert plugins[PROMETHEUS] == {"port": 2003}
    assert plugins[TELEMETRY]["spool_dir"] == str(tmp_path / "telemetry")
    assert plugins[RETAINED]["policy_file"] == str(tmp_path / "retained.policy")
    assert CLUSTER not in plugins
    default = yaml.safe_load((Path(command.__file__).parents[2] / "broker_plugins" / "default_broker.yaml").read_text())
    assert set(default["plugins"]) <= set(plugins)


def test_nodes_share_a_fabric_and_nothing_else(tmp_path):
    chosen = plan(tmp_path, "--nodes", "3", "--port", "2001", "--nats-port", "2009")
    nodes = [yaml.safe_load(path.read_text())["plugins"] for path in chosen.write_configurations()]
    assert [node[CLUSTER]["address"] for node in nodes] == ["127.0.0.1:2001", "127.0.0.1:2002", "127.0.0.1:2003"]
    assert {tuple(node[CLUSTER]["servers"]) for node in nodes} == {("nats://127.0.0.1:2009",)}
    assert len({node[CLUSTER]["node"] for node in nodes}) == 3
    assert len({node[ENGINE]["data_dir"] for node in nodes}) == 3
    assert len({node[TELEMETRY]["node"] for node in nodes}) == 3
    assert len({node[PROMETHEUS]["port"] for node in nodes}) == 3
    assert "2009" in chosen.write_nats_configuration().read_text()


def test_a_port_that_is_asked_for_twice_is_said(tmp_path):
    port = str(free_port())
    with pytest.raises(DemoError, match="is asked for twice, for the broker and for WebSockets"):
        plan(tmp_path, "--port", port, "--websocket-port", port, "--metrics-port", str(free_port())).check_ports()


def test_a_port_that_is_none_is_said(tmp_path):
    with pytest.raises(DemoError, match="port 65536, for the broker, is no port: 1 to 65535 are"):
        plan(tmp_path, "--port", "65535", "--nodes", "2").check_ports()


def test_what_is_not_installed_is_said_and_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("clients.demo.plan.importable", lambda module: False)
    chosen = plan(tmp_path)
    assert not chosen.spark
    assert not chosen.telemetry
    assert not chosen.dashboard
    assert len(chosen.missing) == 2
    assert all("pip install 'locus-mqtt[demo]'" in sentence for sentence in chosen.missing)
    assert chosen.configuration(0)["plugins"][TELEMETRY]["enabled"] is False
    with pytest.raises(DemoError, match="a cluster needs NATS, which is not installed: pip install"):
        plan(tmp_path, "--nodes", "2")


def test_who_asked_for_less_is_told_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("clients.demo.plan.importable", lambda module: False)
    assert plan(tmp_path, "--no-spark", "--no-dashboard").missing == ()
