"""`RoamingClient`: a client of a cluster that follows the owner of the place it is at, without a break."""

from __future__ import annotations

import logging
import secrets
import threading
from typing import TYPE_CHECKING, Any, Self

from broker_plugins.grammar import parse_filter
from clients.client import LocusClient
from clients.roaming_link import RoamingLink
from clients.roaming_tools import HANDOVER_TOPIC, NODES_TOPIC
from clients.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clients.broker import Broker
    from clients.link import Link

logger = logging.getLogger("locus.client")

_FORGET_S = 5.0


class RoamingClient(LocusClient):
    """A `LocusClient` that moves from node to node of a cluster as its position does, and when its node is gone.

    Each node tells it where to go on `$locus/handover`. It connects there before it leaves here, and the application
    sees one stream of messages: none lost, none doubled, in order, at QoS 0 too. If its node dies it goes to another.

        with RoamingClient("node-1.example", nodes=["node-2.example:1883"]) as client:
            client.subscribe("offers/#", print, area=Near(500))
            client.update_position(126.97, 37.56)

    Args:
        host: A node's name or address.
        port: Its port.
        nodes: Further nodes as `host:port`, for the case that the first is not there; it learns the others by itself.
        client_id: Under which name; one is made up if it is empty.
        clean_session: Whether the cluster forgets this client when it is closed. Until then its session is kept, for
            it moves along.
        on_moved: Called with the address of the node that the client has moved to.
        options: What else `LocusClient` takes.
    """

    _link: RoamingLink

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 1883,
        *,
        nodes: Sequence[str] = (),
        client_id: str = "",
        clean_session: bool = True,
        on_moved: Callable[[str], object] | None = None,
        **options: Any,
    ) -> None:
        self._first_nodes = list(nodes)
        self._forgets = clean_session
        self._named = bool(client_id)
        self._on_moved = on_moved
        super().__init__(
            host, port, client_id=client_id or f"roaming-{secrets.token_hex(8)}", clean_session=False, **options
        )

    def _make_link(self, broker: Broker, queue_size: int) -> Link:
        return RoamingLink(broker, self._route, self._greet, queue_size, self._first_nodes, self._has_moved)

    @property
    def address(self) -> str:
        """The node this client is connected to, or was last, as `host:port`."""
        return self._link.address

    @property
    def nodes(self) -> list[str]:
        """The addresses of the nodes it knows."""
        return self._link.nodes

    @property
    def handovers(self) -> int:
        """How often it has moved to another node without a break."""
        return self._link.handovers

    def connect(self, *, timeout_s: float | None = None) -> Self:
        """Connect to a node, the first that is there. Filters subscribed to before are granted when this returns.

        Raises:
            ConnectError: If no node can be reached, or it does not let this client in.
            NoAnswerError: If it does not answer in time.
            SubscriptionRefusedError: If it refuses one of the filters, or `$locus/handover`.
        """
        if self._forgets and self._named:
            self._link.forget_session(_FORGET_S)
        for topic in (HANDOVER_TOPIC, NODES_TOPIC):
            self._open(Subscription(self, topic, parse_filter(topic, self.space, self.limits), 0, None), timeout_s)
        return super().connect(timeout_s=timeout_s)

    def close(self, *, timeout_s: float | None = None) -> None:
        """Leave, as `LocusClient.close` does; the cluster forgets this client unless it is to keep its session."""
        was_open = self._link.opened and not self._link.closed
        super().close(timeout_s=timeout_s)
        if self._forgets and was_open:
            self._link.forget_session(_FORGET_S)

    def _has_moved(self, address: str) -> None:
        if self._on_moved is not None:
            threading.Thread(target=self._tell, args=(address,), name="locus-moved", daemon=True).start()

    def _tell(self, address: str) -> None:
        assert self._on_moved is not None
        try:
            self._on_moved(address)
        except Exception:
            logger.exception("on_moved failed")
