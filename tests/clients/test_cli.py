"""The `locus` command itself: what it offers, and words it does not know."""

from __future__ import annotations

import socket
import ssl

import pytest

from clients.cli import COMMANDS, main
from clients.link import _why_not_reached


def test_without_a_word_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr().out
    assert all(f"\n    {command}" in said for command in COMMANDS)


def test_what_only_an_extra_brings_is_named_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(path: str) -> object:
        raise ModuleNotFoundError(f"{path} wants it", name="nats.errors")

    monkeypatch.setattr("clients.cli.importlib.import_module", missing)
    assert main(["cluster", "status"]) == 1
    expected = "locus cluster needs nats, which is not installed: pip install 'locus-mqtt[cluster]'\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("port", ["99999", "0", "-1", "mqtt"])
@pytest.mark.parametrize("command", [["top"], ["sub", "x"], ["doctor"], ["city"], ["demo"]])
def test_what_is_no_port_is_named(command: list[str], port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*command, f"--port={port}"])
    assert f"'{port}' is no port: 1 to 65535 are" in capsys.readouterr().err


def test_why_a_broker_is_not_reached_comes_with_what_to_do() -> None:
    refused = ConnectionRefusedError(111, "Connection refused")
    assert _why_not_reached(refused).startswith("Connection refused; does one listen there?")
    assert _why_not_reached(socket.gaierror(-2, "Name or service not known")).endswith("is that its name?")
    assert "TLS" in _why_not_reached(ssl.SSLError(1, "wrong version number"))
    assert _why_not_reached(TimeoutError("timed out")).startswith("timed out; does one listen there?")
