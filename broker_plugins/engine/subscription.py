"""One subscription of one session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker_plugins.engine.session import Session
    from broker_plugins.grammar import SmartFilter


class Subscription:
    """What a client asked for, and what it was granted.

    Args:
        session: who subscribed.
        text: the filter as the client said it, with its prefixes; UNSUBSCRIBE names it by this text.
        inner: the ordinary topic filter in it, which access control is asked about.
        qos: the QoS granted.
        share: the group of a shared subscription.
        order: the engine's count of subscriptions when it was made, or its clock for them: smaller is older.
    """

    __slots__ = ("claimed_by", "detail", "held", "inner", "order", "qos", "session", "share", "smart", "text")

    def __init__(
        self, session: Session, text: str, inner: str, qos: int, share: str | None = None, order: int = 0
    ) -> None:
        self.session = session
        self.text = text
        self.inner = inner
        self.qos = qos
        self.share = share
        self.order = order
        self.smart: SmartFilter | None = None
        """What its prefixes say, where it has any."""
        self.claimed_by: object | None = None
        """The plugin that indexes this subscription itself; the engine then leaves it out of its tree."""
        self.detail: Any = None
        """What that plugin keeps with it."""
        self.held: set[str] | None = None
        """Topics whose retained message plugins owe it (see `Feeds.hold`)."""

    def __repr__(self) -> str:
        return f"Subscription({self.session.client_id!r}, {self.text!r}, qos={self.qos})"
