"""`$SYS` topics as Mosquitto's users know them, from the engine's own counters: no cost for a message."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from broker_plugins.engine import Message, Plugin

if TYPE_CHECKING:
    import asyncio

    from broker_plugins.engine.engine import Engine


class SysTopicsPlugin(Plugin):
    """Publishes the state of the broker below `$SYS/broker/`, retained."""

    @dataclass
    class Config:
        """Options of the plugin."""

        interval_s: float = 10.0
        """Time between two publications; only what changed is published."""

    def start(self, engine: Engine) -> None:
        """Begin to publish, once every plugin has started."""
        self._engine = engine
        self._said: dict[str, bytes] = {}
        self._process = psutil.Process()
        self._timer: asyncio.Handle = engine.loop.call_soon(self._publish)

    def stop(self) -> None:
        """Publish no more."""
        self._timer.cancel()

    def _publish(self) -> None:
        self._timer = self._engine.loop.call_later(self.config.interval_s, self._publish)
        for topic, value in self.figures().items():
            self._say(topic, value)

    def _say(self, topic: str, value: float | str) -> None:
        payload = str(value).encode()
        if self._said.get(topic) != payload:
            self._said[topic] = payload
            self._engine.publish(Message(f"$SYS/broker/{topic}", payload, retain=True, volatile=True))

    def figures(self) -> dict[str, float | str]:
        """The current values by topic."""
        engine = self._engine
        counters = engine.counters
        connected = sum(1 for connection in engine.connections if connection.session is not None)
        return {
            "version": "locus",
            "uptime": f"{int(time.time() - engine.started_at)} seconds",
            "clients/connected": connected,
            "clients/total": len(engine.sessions),
            "clients/disconnected": len(engine.sessions) - connected,
            "clients/expired": counters.sessions_expired,
            "subscriptions/count": engine.subscription_count,
            "retained messages/count": len(engine.retained),
            "store/messages/bytes": engine.queued_bytes + engine.retained.bytes,
            "messages/stored": sum(session.queued for session in engine.sessions.values() if session.queued_bytes),
            "publish/messages/received": engine.sequence,
            "publish/messages/sent": counters.deliveries,
            "publish/messages/dropped": counters.dropped_qos0 + counters.dropped_queue_full,
            "bytes/received": counters.bytes_received,
            "bytes/sent": counters.bytes_sent,
            "heap/current": self._process.memory_info().rss,
        }
