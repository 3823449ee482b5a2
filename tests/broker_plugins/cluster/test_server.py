"""A NATS server beside a broker: started with it, gone with it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from broker_plugins.cluster.server import NatsServer, ServerError
from tests.broker_plugins.cluster.nodes import CLUSTER
from tests.brokers import ALLOW_ANONYMOUS, free_port, locus
from tests.mqtt_wire import connect, publish, wait_for

if TYPE_CHECKING:
    from pathlib import Path


def test_an_embedded_server_serves_the_other_nodes_and_ends_with_its_broker(tmp_path: Path) -> None:
    port = free_port()
    first = {"node": "first", "embedded": True, "embedded_port": port, "embedded_dir": str(tmp_path / "nats")}
    second = {"node": "second", "servers": [f"nats://127.0.0.1:{port}"]}
    with locus(plugins={**ALLOW_ANONYMOUS, CLUSTER: first}) as one:
        with (
            locus(plugins={**ALLOW_ANONYMOUS, CLUSTER: second}) as two,
            connect(one.port, "sub") as subscriber,
            connect(two.port, "pub") as publisher,
        ):
            subscriber.subscribe(("t", 0))

            def heard() -> bool:
                publisher.send(publish("t", b"hello"))
                return bool(subscriber.messages_until_ping())

            wait_for(heard, "a message from the second node", 20)
        assert one.stop() == 0
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = NatsServer(taken.getsockname()[1], tmp_path)
        server.start()
        try:
            with pytest.raises(ServerError, match="does not listen on port"):
                server.wait()
        finally:
            server.stop()


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file is in the way")
    with pytest.raises(ServerError, match=r"cannot be started in .*taken.*: .*; make room,"):
        NatsServer(free_port(), tmp_path / "taken").start()
