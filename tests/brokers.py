"""Brokers for tests over real sockets: `with locus() as broker:` and the same for `stock_amqtt` and `mosquitto`.

Each runs in a process of its own on a free port of 127.0.0.1, in a directory that is removed afterwards, and is gone
when the block ends; `broker.port`, `broker.log`, `broker.memory()`, `broker.descriptors()` and `broker.kill()` are
there in between. A broker to be killed and started again takes `directory=tmp_path, port=free_port()`.
"""

from __future__ import annotations

import pytest

from benchmarks.peers import (
    ALLOW_ANONYMOUS,
    ANONYMOUS,
    ENGINE,
    RunningBroker,
    free_port,
    locus,
    mosquitto,
    mosquitto_path,
    stock_amqtt,
)

__all__ = [
    "ALLOW_ANONYMOUS",
    "ANONYMOUS",
    "ENGINE",
    "RunningBroker",
    "free_port",
    "locus",
    "mosquitto",
    "needs_mosquitto",
    "stock_amqtt",
]

needs_mosquitto = pytest.mark.skipif(
    mosquitto_path() is None, reason="mosquitto is not installed: apt-get install mosquitto mosquitto-clients"
)
