"""What is wrong in a configuration is a sentence that names the value and what to do."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from broker_plugins.configuration import DEFAULT_CONFIGURATION, ConfigurationError, look_through, read, why_not_started
from clients.cli import main
from tests.brokers import locus

if TYPE_CHECKING:
    from pathlib import Path

ENGINE = "broker_plugins.engine.plugin.EnginePlugin"


def configured(listener: dict[str, Any] | None = None, plugins: object = None) -> dict[str, Any]:
    return {
        "listeners": {"default": {"type": "tcp", "bind": "127.0.0.1:1883", **(listener or {})}},
        "plugins": {ENGINE: {}} if plugins is None else plugins,
    }


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        ({"listener": {}}, "has no option 'listener'; did you mean 'listeners'?"),
        ({"plugins": {}}, "`listeners:` needs one that is called `default`"),
        ({"listeners": {"default": 1883}}, "listener 'default' is 1883: it needs `type:` and `bind:`"),
        (configured({"type": "tpc"}), "type 'tpc' is none of tcp, ws, external; did you mean 'tcp'?"),
        (configured({"bind": "127.0.0.1:99999"}), "bind '127.0.0.1:99999' is no address and port"),
        (configured({"bind": "localhost"}), "bind 'localhost' is no address and port"),
        (configured({"bind": 1883}), "bind 1883 is no address and port"),
        (configured({"certfile": "no.crt"}), "there is no certfile 'no.crt'"),
        (configured({"port": 1883}), "listener 'default' has no option 'port'; it may have type, bind"),
        (configured(plugins="EnginePlugin"), "`plugins:` is 'EnginePlugin'"),
        (
            configured(plugins={ENGINE: {"data_dirr": "x"}}),
            f"{ENGINE} has no option 'data_dirr'; did you mean 'data_dir'?",
        ),
        (configured(plugins={ENGINE: {"max_inflight": "many"}}), f"plugin {ENGINE}: wrong value type for field"),
        (configured(plugins={ENGINE: "data"}), "its options are 'data'"),
        (
            configured(plugins={ENGINE.replace("EnginePlugin", "EnginPlugin"): {}}),
            "the module has no class 'EnginPlugin'; did you mean 'EnginePlugin'?",
        ),
        (configured(plugins={"no.such.Plugin": {}}), "plugin no.such.Plugin: there is no module 'no'"),
        (
            configured(plugins={"amqtt.plugins.authentication.FileAuthPlugin": {"password_file": "nobody"}}),
            "there is no password_file 'nobody'; `locus passwd nobody USER` writes one",
        ),
        (configured(plugins=["Plugin"]), "plugin Plugin: there is no module 'Plugin'"),
    ],
)
def test_what_is_wrong_is_named_with_a_remedy(configuration: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        look_through(configuration)
    assert words in str(caught.value)


@pytest.mark.parametrize("bind", ["0.0.0.0:1883", "[::1]:1883", ":1883", "1883", "127.0.0.1:0"])
def test_what_amqtt_takes_for_an_address_passes(bind: str) -> None:
    look_through(configured({"bind": bind}, [ENGINE, {"broker_plugins.geo.plugin.GeoPlugin": None}]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty: it needs `listeners:` and `plugins:`; `locus broker --print-config`"),
        ("hello", "has no `listeners:` and `plugins:`"),
        ("a: [1\n", "broker.yaml, line 2, column 1: not YAML: expected ',' or ']'"),
        ("a: \xff", "it is not UTF-8 at byte 3"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "broker.yaml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigurationError) as caught:
        read(file)
    assert words in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_missing_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file; `locus broker --print-config` prints one"):
        read(tmp_path / "broker.yaml")


def test_the_printed_configuration_can_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--print-config"]) == 0
    file = tmp_path / "broker.yaml"
    file.write_text(capsys.readouterr().out)
    assert read(file) == yaml.safe_load(DEFAULT_CONFIGURATION.read_text())


def test_an_address_that_cannot_be_had_is_named() -> None:
    taken = OSError(errno.EADDRINUSE, "error while attempting to bind on address ('127.0.0.1', 1884): in use")
    said = why_not_started(_around(taken), configured())
    assert said.startswith("cannot listen on 127.0.0.1:1884: address already in use.")
    assert "`locus doctor`" in said
    foreign = why_not_started(_around(OSError(errno.EADDRNOTAVAIL, "cannot assign")), configured())
    assert foreign.startswith("cannot listen on 127.0.0.1:1883: this machine has no such address")


def _around(error: OSError) -> RuntimeError:
    wrapped = RuntimeError("it cannot be started")
    wrapped.__cause__ = error
    return wrapped


def test_a_broker_that_lets_nobody_in_says_so() -> None:
    with locus(plugins={}) as broker:
        assert "nobody may come in: no plugin under `plugins:` authenticates" in broker.log
