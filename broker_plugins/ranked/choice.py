"""Choosing the receivers of one message, best first: only who can get it counts, and each counts once."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING

from broker_plugins.engine.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.message import Message
    from broker_plugins.engine.session import Session
    from broker_plugins.ranked.shelves import Holder

    Ranked = tuple[float, int, Subscription | Holder]
    """Who matches, with accuracy and age."""


class Choice:
    """The receivers chosen so far.

    Args:
        engine: who knows what a receiver may have.
        message: what they are chosen for.
        most: how many are wanted; None for all.
    """

    __slots__ = ("_engine", "_message", "_most", "chosen", "passed_over", "sessions", "teams")

    def __init__(self, engine: Engine, message: Message, most: int | None) -> None:
        self._engine = engine
        self._message = message
        self._most = most
        self.chosen: list[tuple[float, Subscription]] = []
        """Accuracy, and by which subscription each was chosen, best first; a shared group is one of them."""
        self.sessions: dict[Session, int] = {}
        """The chosen sessions with the QoS granted."""
        self.teams: dict[tuple[str, str], list[Subscription]] = {}
        """The members of chosen groups that can get the message."""
        self.passed_over = 0

    def fill(self, ranked: Iterable[Ranked]) -> None:
        """Choose from those who match, best first, until there are enough."""
        sessions, chosen, most = self.sessions, self.chosen, self._most
        unguarded = self._engine.guard is None
        for accuracy, _, who in ranked:
            subscription = who if isinstance(who, Subscription) else who.subscription
            if subscription.share is not None:
                self._consider_team(accuracy, [who] if isinstance(who, Subscription) else who.subscriptions)
            else:
                session = subscription.session
                granted = sessions.get(session)
                if granted is not None:
                    if subscription.qos > granted:
                        sessions[session] = subscription.qos  # [MQTT-3.3.5-1]
                    continue
                if (session.out is not None and unguarded) or self._can_get(subscription):
                    sessions[session] = subscription.qos
                    chosen.append((accuracy, subscription))
                else:
                    self.passed_over += 1
            if most is not None and len(chosen) >= most:
                return

    def _consider_team(self, accuracy: float, members: list[Subscription]) -> None:
        able = [member for member in members if self._can_get(member)]
        if not able:
            self.passed_over += 1
            return
        key = (str(able[0].share), able[0].text)
        team = self.teams.get(key)
        if team is None:
            self.teams[key] = able
            self.chosen.append((accuracy, able[0]))
        else:
            team.extend(able)

    def _can_get(self, subscription: Subscription) -> bool:
        """Whether a message would reach a subscriber or wait for it, and whether it may have it at all."""
        session = subscription.session
        if session.connection is None and not (subscription.qos and self._message.qos):
            return False  # nothing of QoS 0 waits for a client that is away
        if not session.can_take:
            return False
        allowed = self._engine.may_receive(session, self._message.topic)
        if isinstance(allowed, bool):
            return allowed
        # Who guards this broker has to think about it. The engine waits for the answer; here it counts as a yes.
        if isinstance(allowed, Coroutine):
            allowed.close()
        return True
