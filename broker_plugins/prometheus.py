"""`GET /metrics` for Prometheus: read off the engine and its plugins when somebody asks, no cost for a message.

Every number that a plugin counts in a `counters` dataclass is a metric by its own name, and the words under the field
are its help. So what is counted anywhere can be seen here; docs/reference/metrics.md names each.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Final

import psutil
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

from broker_plugins.documented import documented
from broker_plugins.engine import Plugin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import DataclassInstance
    from prometheus_client.core import Metric

    from broker_plugins.engine.engine import Engine

log = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 8_192
ANSWER_SECONDS: Final = 5.0
MAX_SCRAPES: Final = 16
"""Requests answered at once; one more is closed at once."""

GAUGES: Final = {
    "cluster": {"blocks", "blocks_owned", "causal_longest_wait_us", "content_boxes"},
    "geo": {"subscriptions", "filters", "fences", "tracked_objects"},
    "ranked": {"subscriptions", "filters"},
    "telemetry": {"buffered_records", "spool_bytes"},
}
"""What plugins have among their counters though it can also fall."""


class _Snapshot:
    """Metrics as they were: can be written out in another thread."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


class PrometheusPlugin(Plugin):
    """Answers Prometheus with what the broker and its plugins count, at `/metrics`."""

    @dataclass
    class Config:
        """Options of the plugin."""

        host: str = "127.0.0.1"
        """Address to listen on. Whoever reaches it can read the metrics: there is no password."""
        port: int = 9464
        """Port to listen on, 0 for any free one, which the log tells; where it is taken the broker runs without metrics
        and says so."""

    def start(self, engine: Engine) -> None:
        """Listen."""
        self._engine = engine
        self._process = psutil.Process()
        self._words: dict[type, dict[str, str]] = {}
        self._scrapes = 0
        self._server: asyncio.Server | None = None
        self.address: tuple[str, int] | None = None
        """Where metrics are served; None where they are not."""
        host, port = self.config.host, self.config.port
        try:
            listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except (OSError, OverflowError) as error:
            log.warning("no metrics for Prometheus: %s:%s cannot be used (%s); choose another port", host, port, error)
            return
        self.address = listening.getsockname()[:2]
        self._opening = engine.loop.create_task(self._open(listening))

    async def _open(self, listening: socket.socket) -> None:
        self._server = await asyncio.start_server(self._answer, sock=listening, limit=MAX_HEAD_BYTES)
        assert self.address is not None
        log.info("metrics for Prometheus at http://%s:%d/metrics", *self.address)

    def stop(self) -> None:
        """Listen no more."""
        if self.address is not None:
            self._opening.cancel()
        if self._server is not None:
            self._server.close()

    # Answering.

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._scrapes >= MAX_SCRAPES:
            writer.transport.abort()
            return
        self._scrapes += 1
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._response(head.decode("latin-1")))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.debug("a request for metrics was not answered: %s", error)
        finally:
            self._scrapes -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _response(self, head: str) -> bytes:
        first, *lines = head.split("\r\n")
        method, _, rest = first.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _http("405 Method Not Allowed", "text/plain", b"only GET\n", "Allow: GET, HEAD\r\n")
        if path != "/metrics":
            return _http("404 Not Found", "text/plain", b"metrics are at /metrics\n", whole=method == "GET")
        accepted = ",".join(line.partition(":")[2] for line in lines if line.lower().startswith("accept:"))
        encode, kind = choose_encoder(accepted)
        # Numbers are read here, at one moment; writing them as text takes longer and happens elsewhere.
        snapshot = _Snapshot(list(self.collect()))
        body = await self._engine.loop.run_in_executor(None, encode, snapshot)
        return _http("200 OK", kind, body, whole=method == "GET")

    def collect(self) -> Iterator[Metric]:
        """Every metric with its value now."""
        engine = self._engine
        yield _counter("messages_received", "Messages published, those of the broker itself too.", engine.sequence)
        yield from self._counted("", engine.counters, set())
        yield _gauge("connections_open", "Connections open now.", len(engine.connections))
        yield _gauge("sessions", "Sessions there are, connected or not.", len(engine.sessions))
        yield _gauge("subscriptions", "Subscriptions of all sessions.", engine.subscription_count)
        yield _gauge("retained_messages", "Retained messages kept.", len(engine.retained))
        yield _gauge("retained_bytes", "Bytes of retained messages kept.", engine.retained.bytes)
        yield _gauge("retained_feeds", "Subscriptions that are being sent their retained messages.", engine.feeds.count)
        yield _gauge("queued_bytes", "Bytes of messages waiting for clients.", engine.queued_bytes)
        yield _gauge("routes", "Topics whose receivers are remembered.", len(engine.routes.by_topic))
        yield _gauge("sampling_share", "Share of messages that telemetry hears of.", engine.sampling)
        store = engine.store
        yield _gauge(
            "store_busy", "1 while something is not on disk yet, else 0.", int(store is not None and store.busy)
        )
        yield _counter(
            "store_failures",
            "Writes to the store that failed and were tried again.",
            0 if store is None else store.failures,
        )
        yield _gauge("uptime_seconds", "Time since the broker started.", time.time() - engine.started_at)
        yield _gauge("resident_memory_bytes", "Memory of the process.", self._process.memory_info().rss)
        for plugin in engine.hooks.plugins:
            counters = getattr(plugin, "counters", None)
            if is_dataclass(counters) and not isinstance(counters, type):
                name = type(plugin).__name__.removesuffix("Plugin").lower()
                yield from self._counted(f"{name}_", counters, GAUGES.get(name, set()))

    def _counted(self, prefix: str, counters: DataclassInstance, gauges: set[str]) -> Iterator[Metric]:
        kind = type(counters)
        words = self._words.get(kind)
        if words is None:
            words = self._words[kind] = documented(kind)
        for field in fields(kind):
            value = getattr(counters, field.name)
            if isinstance(value, int | float):
                make = _gauge if field.name in gauges else _counter
                yield make(prefix + field.name, words.get(field.name, ""), value)


def _counter(name: str, words: str, value: float) -> Metric:
    return CounterMetricFamily(f"locus_{name}", words, value=value)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(f"locus_{name}", words, value=value)


def _http(status: str, kind: str, body: bytes, more: str = "", *, whole: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{more}\r\n"
    )
    return head.encode("latin-1") + (body if whole else b"")
