"""What an operator can set of the engine: every bound has a default, a unit in its name and a counter."""

from __future__ import annotations

from dataclasses import dataclass, fields

from broker_plugins.engine.errors import EngineError

DURABILITIES = ("off", "batched", "strict")


@dataclass
class EngineOptions:
    """Options of `broker_plugins.engine.plugin.EnginePlugin`."""

    data_dir: str = "locus-data"
    """Directory of the file with persistent sessions and retained messages; made if it is missing."""
    durability: str = "batched"
    """`off`: nothing survives a restart. `batched`: nothing acknowledged is lost when the process dies (`kill -9`); a
    power cut may cost the last moments. `strict`: nor by a power cut; acknowledgements wait for the disk itself."""
    max_packet_bytes: int = 1_048_576
    """Largest packet a client may send; the connection is closed at a larger one."""
    max_connections: int = 50_000
    """Connections open at once; one more is closed at once."""
    max_sessions: int = 200_000
    """Sessions kept at once, connected or not; one more is refused with CONNACK 0x03."""
    max_subscriptions_per_client: int = 50_000
    """Subscriptions of one client; one more gets SUBACK 0x80."""
    max_inflight: int = 100
    """QoS 1 and 2 messages on their way to one client and not yet acknowledged; further ones wait in its queue."""
    max_queued_messages: int = 10_000
    """Messages waiting for one client. At the bound QoS 0 is dropped oldest first; QoS 1 and 2 are not queued, and a
    line of the log says so."""
    max_queued_bytes: int = 8_388_608
    """Bytes of messages waiting for one client; overflow as for messages."""
    max_total_queued_bytes: int = 1_073_741_824
    """Bytes of messages waiting for all clients together; overflow as for one client."""
    max_unacknowledged: int = 1_000
    """Publishes of one client that wait for the disk; it is not read from until some are safe."""
    max_write_buffer_bytes: int = 262_144
    """Bytes handed to a socket and not yet taken by it, after which messages wait in the client's queue."""
    max_retained_messages: int = 2_000_000
    """Retained messages kept; one on a further topic is delivered but not retained, and counted."""
    max_retained_bytes: int = 2_147_483_648
    """Bytes of retained messages kept; overflow as for their number."""
    max_routes: int = 65_536
    """Topics whose receivers are remembered between messages; all are forgotten and found anew when there are more."""
    connect_timeout_s: float = 10.0
    """Time a new connection has to send its CONNECT."""
    session_expiry_s: float = 0.0
    """How long a persistent session is kept after its client left; 0 keeps it for ever."""

    def __post_init__(self) -> None:
        if self.durability not in DURABILITIES:
            raise EngineError(f"durability: {self.durability!r} is none of {', '.join(DURABILITIES)}")
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name.startswith("max_") and value < 1:
                raise EngineError(f"{option.name}: {value} is too small; it is at least 1")
        if self.max_inflight > 65_535:
            raise EngineError(f"max_inflight: {self.max_inflight} is more than there are packet identifiers (65535)")
        if self.connect_timeout_s <= 0 or self.session_expiry_s < 0:
            raise EngineError("connect_timeout_s is above 0 and session_expiry_s at least 0")
