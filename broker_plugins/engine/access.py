"""Who may publish, subscribe and receive: what the engine asks of whoever guards its topics.

An answer is a bool where it is known at once, or an awaitable where a guard has to ask elsewhere; the engine then lets
the client concerned wait, and nobody else.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from broker_plugins.engine.codec import Connect
    from broker_plugins.engine.connection import Connection
    from broker_plugins.engine.session import Session


class Action(Enum):
    """What a session wants with a topic."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    RECEIVE = "receive"


class Guard(Protocol):
    """Authentication and access control, as the host's plugins provide them."""

    @property
    def guards_topics(self) -> bool:
        """Whether `may` has to be asked at all."""

    def authenticate(self, connection: Connection, connect: Connect) -> bool | Awaitable[bool]:
        """Whether a client is who it says it is."""

    def adopt(self, connection: Connection, session: Session) -> None:
        """An authenticated client has got its session."""

    def may(self, session: Session, topic: str, action: Action) -> bool | Awaitable[bool]:
        """Whether a session may do something with a topic (for SUBSCRIBE: with a filter)."""
