from __future__ import annotations

import os
import socket

from clients.machine import importable, installed, who_listens, why_no_java, why_taken
from tests.brokers import free_port


def test_a_port_is_free_or_somebody_holds_it():
    port = free_port()
    assert why_taken("127.0.0.1", port) is None
    with socket.create_server(("127.0.0.1", port)):
        reason = why_taken("127.0.0.1", port)
        assert reason is not None
        assert reason.startswith("is taken")
        assert who_listens(port) in {None} | {f"{name} (process {os.getpid()})" for name in _names()}
    assert why_taken("127.0.0.1", port) is None


def _names():
    import psutil

    return [psutil.Process().name()]


def test_what_is_no_port_or_no_address_is_said():
    assert why_taken("127.0.0.1", 0) == "is no port: 1 to 65535 are"
    assert why_taken("127.0.0.1", 65_536) == "is no port: 1 to 65535 are"
    reason = why_taken("192.0.2.77", free_port())  # an address for documentation, nobody's
    assert reason is not None
    assert reason.startswith("cannot be used")


def test_modules_and_distributions():
    assert importable("clients.machine")
    assert not importable("clients.no_such_module")
    assert not importable("no_such_package.module")
    assert installed("paho-mqtt") is not None
    assert installed("no-such-distribution") is None


def test_java_is_looked_for_where_spark_would(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    reason = why_no_java()
    assert reason is not None
    assert "no Java found" in reason
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    reason = why_no_java()
    assert reason is not None
    assert "is Java 11" in reason
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\" 2024-01-16' >&2\n")
    assert why_no_java() is None
