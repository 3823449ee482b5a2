"""Choosing the receivers of one message, best first: only who can get it counts, and each counts once."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.hooks import Selection
    from broker_plugins.engine.message import Message
    from broker_plugins.engine.session import Session
    from broker_plugins.engine.subscription import Subscription


class Candidate(NamedTuple):
    """A subscription that matches, or the matching members of a shared one."""

    accuracy: float
    order: int
    subscriptions: Sequence[Subscription]

    def rank(self) -> tuple[float, int]:
        """What orders candidates: accuracy, then age."""
        return self.accuracy, self.order


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
        self.chosen: list[Candidate] = []
        self.sessions: dict[Session, int] = {}
        """The chosen with the QoS granted."""
        self.teams: dict[tuple[str, str], list[Subscription]] = {}
        """The members of chosen groups that can get the message."""
        self.passed_over = 0

    @property
    def full(self) -> bool:
        """Whether there are enough."""
        return self._most is not None and len(self.chosen) >= self._most

    def consider(self, candidate: Candidate) -> None:
        """Take the next best, if it can get the message and is not among the chosen yet."""
        first = candidate.subscriptions[0]
        if first.share is not None:
            self._consider_team((first.share, first.text), candidate)
            return
        session = first.session
        granted = self.sessions.get(session)
        if granted is not None:
            if first.qos > granted:
                self.sessions[session] = first.qos  # [MQTT-3.3.5-1]
        elif self._can_get(first):
            self.sessions[session] = first.qos
            self.chosen.append(candidate)
        else:
            self.passed_over += 1

    def _consider_team(self, key: tuple[str, str], candidate: Candidate) -> None:
        able = [member for member in candidate.subscriptions if self._can_get(member)]
        team = self.teams.get(key)
        if team is not None:
            team.extend(able)
        elif able:
            self.teams[key] = able
            self.chosen.append(candidate)
        else:
            self.passed_over += 1

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

    def apply(self, selection: Selection) -> None:
        """Let the chosen be the receivers, best first."""
        selection.receivers = self.sessions
        selection.groups = self.teams
