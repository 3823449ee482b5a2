"""A connection of somebody who roams a cluster: it follows the node that owns the place they are at."""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING, Any, Final

from clients.errors import ClosedError, LocusClientError
from clients.position import POSITION_TOPIC
from clients.roaming import RoamingClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from clients.city.connection import Publication
    from clients.messages import Message

log = logging.getLogger(__name__)

MOST_WAITING: Final = 50
"""Messages that wait while the client moves; one more is skipped, for a position that is late is worth nothing."""
ANSWER_S: Final = 10.0
RETRY_S: Final = 2.0
GOODBYE_S: Final = 3.0


class RoamingConnection:
    """What `Connection` is, with a `RoamingClient`: a thread of its own connects, publishes and leaves.

    Args:
        host: a node.
        port: its port.
        name: the client's identifier.
        nodes: the nodes there are, as `host:port`.
        filters: what it subscribes to.
        on_message: called with topic and payload of what comes.
        greeting: what is said when it has connected for the first time.
        moved: called with the addresses it moved from and to.
    """

    def __init__(
        self,
        host: str,
        port: int,
        name: str,
        *,
        nodes: Sequence[str],
        filters: Sequence[str],
        on_message: Callable[[str, bytes], None],
        greeting: Callable[[], Iterable[Publication]],
        moved: Callable[[str, str], None],
    ) -> None:
        self.name = name
        self.refused: set[str] = set()
        self.published = 0
        self.skipped = 0
        self._host, self._port = host, port
        self._nodes = nodes
        self._filters = filters
        self._heard = on_message
        self._greeting = greeting
        self._moved = moved
        self._address = ""
        self._client: RoamingClient | None = None
        self._leaving = threading.Event()
        self._waiting: queue.Queue[Publication | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def up(self) -> bool:
        """Whether there is a connection at the moment."""
        client = self._client
        return client is not None and client.connected and not self._leaving.is_set()

    def publish(self, topic: str, said: Any, *, retain: bool = False) -> bool:
        """Say something in JSON, if there is a connection and room; whether it will be said."""
        if not self.up:
            return False
        if self._waiting.qsize() >= MOST_WAITING:
            self.skipped += 1
            return False
        self._waiting.put((topic, said, retain))
        self.published += 1
        return True

    def leave(self) -> None:
        """Say goodbye, and return at once."""
        self._leaving.set()
        self._waiting.put(None)

    def close(self) -> None:
        """Wait until the goodbye was said, for a while."""
        self.leave()
        self._thread.join(2 * GOODBYE_S)

    def _work(self) -> None:
        while not self._leaving.is_set() and self._client is None:
            self._client = self._connected()
            if self._client is None:
                self._leaving.wait(RETRY_S)
        client = self._client
        if client is None:
            return
        while (publication := self._waiting.get()) is not None:
            try:
                self._say(client, publication)
            except ClosedError:
                break
            except LocusClientError:
                self.skipped += 1  # it was between two nodes for too long
        client.close(timeout_s=GOODBYE_S)

    def _connected(self) -> RoamingClient | None:
        client = RoamingClient(
            self._host,
            self._port,
            nodes=self._nodes,
            client_id=self.name,
            on_moved=self._has_moved,
            timeout_s=ANSWER_S,
        )
        for text in self._filters:
            client.subscribe(text, self._take)
        try:
            client.connect()
            self._address = client.address
            for publication in self._greeting():
                self._say(client, publication)
        except (LocusClientError, OSError) as error:
            log.info("%s: %s", self.name, error)
            client.close(timeout_s=GOODBYE_S)
            return None
        return client

    @staticmethod
    def _say(client: RoamingClient, publication: Publication) -> None:
        topic, said, retain = publication
        if topic == POSITION_TOPIC:
            client.update_position(said["lon"], said["lat"])  # so that it is told again to the next node
        else:
            client.publish(topic, said, retain=retain)

    def _take(self, message: Message) -> None:
        self._heard(message.topic, message.payload)

    def _has_moved(self, address: str) -> None:
        before, self._address = self._address, address
        if before != address:
            self._moved(before, address)
