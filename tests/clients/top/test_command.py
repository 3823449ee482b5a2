"""`locus top` against real brokers."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time

from clients import LocusClient
from clients.cli import main
from clients.top import command
from tests.brokers import ALLOW_ANONYMOUS, free_port, locus
from tests.clients.top.test_picture import MINUTE, WINDOW

PATIENCE_S = 90.0
PLUGINS = {**ALLOW_ANONYMOUS, "broker_plugins.sys_topics.SysTopicsPlugin": {"interval_s": 0.5}}


def test_once_prints_one_picture(capsys):
    with locus(plugins=PLUGINS) as broker:
        with LocusClient(port=broker.port, timeout_s=PATIENCE_S) as client:
            client.publish("locus/metrics/node1/10s", WINDOW, retain=True, qos=1)
            client.publish("locus/metrics/node1/1min", MINUTE, retain=True, qos=1)
            client.publish("locus/metrics/node1/10s/prefix/city", WINDOW, retain=True, qos=1)
        assert main(["top", "--once", "-p", str(broker.port), "--timeout", "90s"]) == 0
    said = capsys.readouterr().out
    assert f"127.0.0.1:{broker.port} is up" in said
    assert "subscriptions" in said
    assert "city/…" in said
    assert "150 (75%)" in said


def test_once_without_a_broker_is_one_sentence(capsys):
    port = free_port()
    assert main(["top", "--once", "-p", str(port)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"locus top: cannot reach a broker at 127.0.0.1:{port}")
    assert captured.err.count("\n") == 1


def test_without_rich_it_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setattr("clients.top.command.find_spec", lambda name: None)
    assert main(["top", "--once"]) == 1
    assert capsys.readouterr().err == "locus top needs rich: pip install rich\n"


def test_it_says_when_the_broker_is_away_and_recovers(tmp_path):
    port = free_port()
    words = [sys.executable, "-m", "clients.cli", "top", "--every", "200ms", "-p", str(port)]
    environment = {**os.environ, "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
    lines: list[str] = []
    threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()

    def wait_for(words):
        """The words, in what was printed since the last wait."""
        deadline = time.monotonic() + PATIENCE_S
        while not any(words in line for line in lines):
            assert process.poll() is None
            assert time.monotonic() < deadline, f"{words!r} was not said"
            time.sleep(0.05)
        lines.clear()

    try:
        wait_for("is away: cannot reach a broker")
        for _ in range(2):
            with locus(plugins=PLUGINS, port=port, directory=tmp_path) as broker:
                wait_for("is up for")
                wait_for("messages in")
                broker.kill()
            wait_for("is away: the connection was lost")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()


def _read(stream, lines):
    for line in stream:
        lines.append(line)


def test_there_is_a_rate_once_somebody_publishes():
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    with locus(plugins=PLUGINS) as broker:
        listening = command.Listening(parser.parse_args(["-p", str(broker.port), "--timeout", "90s"]))
        listening.connect()
        try:
            with LocusClient(port=broker.port, timeout_s=PATIENCE_S) as client:
                deadline = time.monotonic() + PATIENCE_S
                while listening.figures.rates.get("publish/messages/received", 0.0) < 20.0:
                    assert time.monotonic() < deadline
                    client.publish("a", json.dumps({"a": 1}), qos=1)
                    time.sleep(0.01)
                    listening.look()
                assert listening.away is None
        finally:
            listening.close()
