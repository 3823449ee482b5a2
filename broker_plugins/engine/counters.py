"""What the engine counts. Plain integers that only grow; gauges are read off the engine itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """One broker's counts since it started."""

    connections: int = 0
    """Connections accepted."""
    connections_refused: int = 0
    """Connections closed at once because `max_connections` was reached."""
    connects_refused: int = 0
    """CONNECTs answered with a refusal."""
    connect_timeouts: int = 0
    """Connections closed because no CONNECT came in time."""
    keep_alive_timeouts: int = 0
    """Connections closed because a client was silent for 1.5 times its keep-alive."""
    takeovers: int = 0
    """Connections closed because their client connected again."""
    violations: int = 0
    """Connections closed because a client broke the protocol or a bound."""
    bytes_received: int = 0
    """Bytes received from clients."""
    bytes_sent: int = 0
    """Bytes handed to the sockets of clients."""
    deliveries: int = 0
    """Messages handed to receivers or to their queues."""
    dropped_qos0: int = 0
    """QoS 0 messages dropped because a client's queue was full."""
    dropped_queue_full: int = 0
    """QoS 1 and 2 messages not queued because a client's queue was full."""
    dropped_retained: int = 0
    """Retained messages delivered but not kept because a bound was reached."""
    refused_publishes: int = 0
    """Publishes stopped by access control or by a plugin, or sent to a topic that starts with `$`."""
    refused_subscriptions: int = 0
    """Subscriptions answered with SUBACK 0x80."""
    refused_receives: int = 0
    """Deliveries stopped by access control."""
    bad_clauses: int = 0
    """Publishes dropped because their message clauses could not be read."""
    plugin_faults: int = 0
    """Exceptions raised by plugins."""
    redelivered: int = 0
    """Messages sent again after a reconnect."""
    sessions_expired: int = 0
    """Persistent sessions ended because their client stayed away."""
