"""Commands that look at a cluster are let in where its nodes are, and say why not."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from broker_plugins.cluster.fabric import Fabric, read_leases
from broker_plugins.cluster.options import ClusterOptions
from broker_plugins.cluster.server import program
from broker_plugins.cluster.visiting import PASSWORD, PLUGIN, add_arguments, options_of
from broker_plugins.engine import EngineError
from tests.brokers import free_port
from tests.mqtt_wire import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCUS = [sys.executable, "-m", "clients.cli", "cluster"]


def read(*words: str) -> ClusterOptions:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return options_of(parser.parse_args(words))


def configured(path: Path, **options: Any) -> Path:
    """The configuration of a node."""
    listeners = {"default": {"type": "tcp", "bind": "127.0.0.1:0"}}
    plugins = {"broker_plugins.engine.plugin.EnginePlugin": {}, PLUGIN: options}
    path.write_text(yaml.safe_dump({"listeners": listeners, "plugins": plugins}, sort_keys=False))
    return path


def test_what_is_said_last_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSWORD, raising=False)
    assert read() == ClusterOptions()
    path = configured(
        tmp_path / "node.yaml", cluster="blue", servers=["nats://far:1"], user="node", password="in the file"
    )
    plain = read("-c", str(path))
    assert (plain.cluster, plain.servers, plain.user, plain.password) == (
        "blue",
        ["nats://far:1"],
        "node",
        "in the file",
    )
    monkeypatch.setenv(PASSWORD, "in the environment")
    told = read("-c", str(path), "--cluster", "red", "--server", "tls://near:2", "--user", "me")
    assert (told.cluster, told.servers, told.user, told.password) == (
        "red",
        ["tls://near:2"],
        "me",
        "in the environment",
    )
    secret = tmp_path / "secret"
    secret.write_text("of its own\n")
    assert read("--user", "me", "--password-file", str(secret)).password == "of its own"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--server", "nats://me:secret@near"], f"seen by everybody.*{PASSWORD}"),
        (["--tls-ca-file", "nowhere.pem"], "tls_ca_file: there is no file 'nowhere.pem'"),
        (["--password-file", "nowhere"], "--password-file: cannot read nowhere"),
        (["-c", "nowhere.yaml"], "nowhere.yaml: there is no such file"),
    ],
)
def test_what_cannot_be_used_is_said(words: list[str], why: str) -> None:
    with pytest.raises(EngineError, match=why) as told:
        read(*words)
    assert "secret@" not in str(told.value)


def test_a_broker_that_is_no_node_is_said(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text(
        "listeners: {default: {type: tcp, bind: '127.0.0.1:0'}}\n"
        "plugins: {broker_plugins.engine.plugin.EnginePlugin: {}}\n"
    )
    with pytest.raises(EngineError, match="is no node's"):
        read("-c", str(path))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guarded")


@pytest.fixture(scope="module")
def guarded(directory: Path) -> Iterator[str]:
    """A server with TLS that wants a password; where it listens."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    command = (
        f"req -x509 {key} -days 2 -subj /CN=nats -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    )
    subprocess.run(["openssl", *command.split()], cwd=directory, check=True, capture_output=True)
    port = free_port()
    (directory / "nats.conf").write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{directory}" }}\n'
        "authorization { user: locus, password: secret }\n"
        f'tls {{ cert_file: "{directory}/cert.pem", key_file: "{directory}/key.pem" }}\n'
    )
    with (directory / "nats.log").open("wb") as log:
        process = subprocess.Popen([program(), "-c", str(directory / "nats.conf")], stdout=log, stderr=log)
    try:
        wait_for(lambda: b"Server is ready" in (directory / "nats.log").read_bytes(), "the server", 60)
        yield f"tls://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


async def test_who_is_not_let_in_is_told_why(guarded: str, directory: Path) -> None:
    ca = str(directory / "cert.pem")
    for options, why in (
        ({}, "not trusted"),
        ({"tls_ca_file": ca}, "does not let us in"),
        ({"tls_ca_file": ca, "user": "locus", "password": "wrong"}, "does not let us in"),
    ):
        with pytest.raises(EngineError, match=why):
            await read_leases(ClusterOptions(servers=[guarded], **options))


async def _lease(options: ClusterOptions) -> None:
    """Leave the lease of a node there."""

    async def up() -> None:
        pass

    fabric = Fabric(options, 1, {}, up)
    await fabric._connect()
    await fabric._settle()
    assert fabric._client is not None
    await fabric._client.close()


async def test_status_and_drain_by_the_configuration_of_a_node(guarded: str, directory: Path) -> None:
    options = {"servers": [guarded], "user": "locus", "tls_ca_file": str(directory / "cert.pem"), "lease_s": 600.0}
    path = configured(directory / "node.yaml", node="one", **options, password="secret")
    await _lease(ClusterOptions(node="one", **options, password="secret"))

    def call(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*LOCUS, *words], capture_output=True, text=True, check=False, env={**os.environ, **environment}
        )

    status = call("status", "-c", str(path))
    assert status.returncode == 0, status.stderr
    assert status.stdout.splitlines()[1].split()[0] == "one"
    ways = ["--server", guarded, "--user", "locus", "--tls-ca-file", str(directory / "cert.pem")]
    by_options = call("status", *ways, **{PASSWORD: "secret"})
    assert by_options.stdout == status.stdout, by_options.stderr
    drained = call("drain", "one", "-c", str(path), "--timeout", "1")
    assert drained.returncode == 1
    assert "no node 'one' that answers" in drained.stderr  # let in, but nobody is there who could answer
    refused = call("drain", "one", *ways)
    assert refused.returncode == 1
    assert "does not let us in" in refused.stderr
