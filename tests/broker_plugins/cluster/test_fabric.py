"""The fabric against a real NATS server: leases, compare and set, mailboxes."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from typing import TYPE_CHECKING

import nats.js.errors
import pytest

from broker_plugins.cluster.fabric import Fabric, read_leases
from broker_plugins.cluster.options import ClusterOptions
from broker_plugins.cluster.server import NatsServer, program
from broker_plugins.engine import EngineError
from tests.brokers import free_port
from tests.mqtt_wire import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(free_port(), tmp_path_factory.mktemp("nats"))
    server.start()
    try:
        server.wait()
        yield server
    finally:
        server.stop()


async def join(server: NatsServer, node: str, cluster: str, incarnation: int = 1) -> tuple[Fabric, asyncio.Task[None]]:
    up = asyncio.Event()

    async def joined() -> None:
        up.set()

    options = ClusterOptions(node=node, cluster=cluster, servers=[server.url], hello_s=0.1, lease_s=1.0)
    fabric = Fabric(options, incarnation, {}, joined)
    task = asyncio.ensure_future(fabric.run())
    await asyncio.wait_for(up.wait(), 10)
    return fabric, task


async def leave(fabric: Fabric, task: asyncio.Task[None]) -> None:
    task.cancel()
    await fabric.close()


async def test_changes_of_the_directory_are_not_lost(server: NatsServer) -> None:
    fabrics = [await join(server, f"n{number}", "contended") for number in range(3)]

    async def count(fabric: Fabric) -> None:
        for _ in range(20):
            await fabric.directory_change("counter", lambda value: str(int(value or b"0") + 1).encode())

    await asyncio.gather(*(count(fabric) for fabric, _ in fabrics))
    value, revision = await fabrics[0][0].directory_get("counter")
    assert value == b"60"
    assert revision >= 60
    assert await fabrics[1][0].directory_change("counter", lambda _: None) == b"60"
    assert await fabrics[1][0].directory_get("nothing") == (None, 0)
    for each in fabrics:
        await leave(*each)


async def test_a_lease_is_given_back_or_runs_out(server: NatsServer) -> None:
    stays, staying = await join(server, "stays", "leases")
    goes = await join(server, "goes", "leases")
    dies, dying = await join(server, "dies", "leases")
    assert [lease.node for lease in await read_leases(ClusterOptions(servers=[server.url], cluster="leases"))] == [
        "dies",
        "goes",
        "stays",
    ]
    await leave(*goes)
    dying.cancel()

    async def only_one() -> None:
        while [lease.node for lease in await read_leases(ClusterOptions(servers=[server.url], cluster="leases"))] != [
            "stays"
        ]:
            await stays.renew(1, 2, 3)
            await asyncio.sleep(0.1)

    await asyncio.wait_for(only_one(), 15)
    (lease,) = await read_leases(ClusterOptions(servers=[server.url], cluster="leases"))
    assert (lease.clients, lease.subscriptions, lease.filters) == (1, 2, 3)
    await leave(stays, staying)
    await dies.close()


async def test_two_nodes_cannot_have_one_name(server: NatsServer) -> None:
    first, running = await join(server, "twin", "names", incarnation=1)

    async def live() -> None:
        while True:
            await first.renew(0, 0, 0)
            await asyncio.sleep(0.05)

    living = asyncio.ensure_future(live())
    joining = asyncio.ensure_future(join(server, "twin", "names", incarnation=2))
    done, _ = await asyncio.wait({joining}, timeout=1.5)
    assert not done, "a second node joined under a name that is taken"
    living.cancel()
    running.cancel()
    await first.close()
    second = await asyncio.wait_for(joining, 15)
    await leave(*second)


async def test_a_mailbox_keeps_order_and_recognises_what_was_posted_before(server: NatsServer) -> None:
    fabric, task = await join(server, "owner", "mail")
    for number in (1, 2, 2, 3):
        await fabric.post("owner", str(number).encode(), f"id-{number}")
    reader = await fabric.collect(0)
    assert await reader.next() == [(1, b"1"), (2, b"2"), (3, b"3")]
    await reader.close()
    await fabric.empty(2)
    again = await fabric.collect(0)
    assert await again.next() == [(3, b"3")]
    await again.close()
    await leave(fabric, task)


def certificates(directory: Path) -> None:
    """An authority of our own, and a certificate of it for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    for command in (
        f"req -x509 {key} -days 2 -subj /CN=authority -keyout ca.key -out ca.pem",
        f"req {key} -subj /CN=node -keyout key.pem -out node.csr",
        "x509 -req -in node.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out cert.pem",
    ):
        (directory / "names").write_text("subjectAltName=IP:127.0.0.1\n")
        subprocess.run(["openssl", *command.split()], cwd=directory, check=True, capture_output=True)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[str]:
    """A server that wants TLS, a certificate of the client's and a password; where it listens."""
    certificates(tmp_path)
    port = free_port()
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    (tmp_path / "nats.conf").write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{tmp_path}" }}\n'
        "authorization { user: locus, password: secret }\n"
        f'tls {{ cert_file: "{files["cert"]}", key_file: "{files["key"]}", ca_file: "{files["ca"]}", verify: true }}\n'
    )
    with (tmp_path / "nats.log").open("wb") as log:
        process = subprocess.Popen([program(), "-c", str(tmp_path / "nats.conf")], stdout=log, stderr=log)
    try:
        wait_for(lambda: b"Server is ready" in (tmp_path / "nats.log").read_bytes(), "the server", 60)
        yield f"tls://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


async def test_a_fabric_with_tls_and_a_password_lets_in_who_has_both(guarded: str, tmp_path: Path) -> None:
    pem = {name: str(tmp_path / f"{name}.pem") for name in ("ca", "cert", "key")}
    known = {"tls_ca_file": pem["ca"], "tls_certificate_file": pem["cert"], "tls_key_file": pem["key"]}

    async def joins(seconds: float, **options: str) -> bool:
        up = asyncio.Event()

        async def joined() -> None:
            up.set()

        chosen = ClusterOptions(node="n", servers=[guarded], hello_s=0.1, lease_s=1.0, **options)
        fabric = Fabric(chosen, 1, {}, joined)
        running = asyncio.ensure_future(fabric.run())
        try:
            await asyncio.wait_for(up.wait(), seconds)
            await fabric.post("n", b"over TLS", "1")
            reader = await fabric.collect(0)
            assert await reader.next() == [(1, b"over TLS")]
            await reader.close()
        except TimeoutError:
            return False
        else:
            return True
        finally:
            running.cancel()
            await fabric.close()

    assert not await joins(1.0, **known, user="locus", password="wrong")
    assert not await joins(1.0, tls_ca_file=pem["ca"], user="locus", password="secret")
    assert await joins(60.0, **known, user="locus", password="secret")


async def test_no_server_is_said_in_words() -> None:
    with pytest.raises(EngineError, match="no NATS server answers"):
        await read_leases(ClusterOptions(servers=[f"nats://127.0.0.1:{free_port()}"]))


@pytest.mark.parametrize("options", [{"node": "a b"}, {"servers": []}, {"hello_s": 5.0}, {"replicas": 0}])
def test_options_that_make_no_sense_are_refused(options: dict) -> None:
    with pytest.raises(EngineError):
        ClusterOptions(**options)


def test_where_clients_reach_a_node_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCUS_ADDRESS", "127.0.0.1:1884")
    assert ClusterOptions(node="n").address == "127.0.0.1:1884"
    assert ClusterOptions(node="n", address="n:1883").address == "n:1883"


async def test_a_directory_that_has_no_room_is_an_error_and_not_tried_for_ever() -> None:
    class Full:
        tries = 0

        async def get(self, _key: str) -> None:
            raise nats.js.errors.KeyNotFoundError

        async def create(self, _key: str, _value: bytes) -> None:
            self.tries += 1
            assert self.tries == 1, "it is tried for ever"
            raise nats.js.errors.BadRequestError(code=400, err_code=10_077, description="maximum bytes exceeded")

    fabric = Fabric(ClusterOptions(node="n"), 1, {}, lambda: asyncio.sleep(0))
    fabric._directory = Full()  # type: ignore[assignment]
    with pytest.raises(nats.js.errors.BadRequestError):
        await asyncio.wait_for(fabric.directory_change("map", lambda _: b"new"), 60)
