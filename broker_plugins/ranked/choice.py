"""Choosing the receivers of one message, best first: only who can get it counts, and each counts once."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_plugins.engine.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

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

    __slots__ = ("_engine", "_message", "_most", "ages", "chosen", "passed_over", "sessions", "teams")

    def __init__(self, engine: Engine, message: Message, most: int | None) -> None:
        self._engine = engine
        self._message = message
        self._most = most
        self.chosen: list[tuple[float, Subscription]] = []
        """Accuracy, and by which subscription each was chosen, best first; a shared group is one of them."""
        self.ages: list[int] = []
        """How old each of these is, by which ties are broken."""
        self.sessions: dict[Session, int] = {}
        """The chosen sessions with the QoS granted."""
        self.teams: dict[tuple[str, str], list[Subscription]] = {}
        """The members of chosen groups that can get the message."""
        self.passed_over = 0

    def fill(self, ranked: Iterable[Ranked]) -> None:
        """Choose from those who match, best first, until there are enough."""
        sessions, chosen, most = self.sessions, self.chosen, self._most
        unguarded = self._engine.guard is None
        for accuracy, age, who in ranked:
            subscription = who if isinstance(who, Subscription) else who.subscription
            if subscription.share is not None:
                self._consider_team(accuracy, age, [who] if isinstance(who, Subscription) else who.subscriptions)
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
                    self.ages.append(age)
                else:
                    self.passed_over += 1
            if most is not None and len(chosen) >= most:
                return

    def _consider_team(self, accuracy: float, age: int, members: list[Subscription]) -> None:
        able = [member for member in members if self._can_get(member)]
        if not able:
            self.passed_over += 1
            return
        key = (str(able[0].share), able[0].text)
        team = self.teams.get(key)
        if team is None:
            self.teams[key] = able
            self.chosen.append((accuracy, able[0]))
            self.ages.append(age)
        else:
            team.extend(able)

    def cut(self, most: int | None, groups: Collection[str]) -> None:
        """Keep the best so many who can still get it, and of the shared groups those with these texts."""
        sessions: dict[Session, int] = {}
        teams: dict[tuple[str, str], list[Subscription]] = {}
        chosen: list[tuple[float, Subscription]] = []
        for accuracy, subscription in self.chosen:
            if subscription.share is not None:
                key = (subscription.share, subscription.text)
                if subscription.text not in groups:
                    continue
                teams[key] = [member for member in self.teams[key] if not member.session.ended]
            else:
                session = subscription.session
                if (most is not None and len(sessions) >= most) or session.ended or not self._can_get(subscription):
                    continue
                sessions[session] = self.sessions[session]
            chosen.append((accuracy, subscription))
        self.sessions, self.teams, self.chosen = sessions, teams, chosen

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


@dataclass(slots=True)
class Verdict:
    """What was decided of a message before it is delivered, together with others who serve it too.

    Attributes:
        most: how many of the best here get it, shared groups not counted; None for all.
        groups: the texts of the shared groups that are served here.
        choice: who it was decided about; None if that is not known any more, and is found anew.
        ranking: everybody who gets it, here or elsewhere, best first: accuracy, client and shared group.
        count: how many these are, the list may be shorter.
    """

    most: int | None
    groups: Collection[str]
    choice: Choice | None = None
    ranking: Sequence[tuple[float, str, str]] | None = None
    count: int = 0
