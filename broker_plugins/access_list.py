"""Who may read and write which topics, from a list in the configuration.

It is a topic plugin as amqtt knows them, so the engine asks it about the ordinary filter inside a smart or shared one,
on SUBSCRIBE, for every delivery and for retained messages. Whatever the list does not allow is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from amqtt.contexts import Action
from amqtt.plugins.base import BaseTopicPlugin

from broker_plugins.engine import EngineError
from broker_plugins.engine.topics import filter_fault, matches

if TYPE_CHECKING:
    from amqtt.contexts import BaseContext
    from amqtt.session import Session

NAMES: Final = {"%u": "username", "%c": "client_id"}
MAX_REMEMBERED: Final = 65_536
"""Answers that are remembered; all are forgotten when there are more."""


@dataclass
class AccessListOptions:
    """Options of `broker_plugins.access_list.AccessListPlugin`."""

    everyone: dict[str, list[str]] = field(default_factory=dict)
    """Topic filters that every client may `read` and `write`; a level `%u` is its user name, `%c` its identifier."""
    anonymous: dict[str, list[str]] = field(default_factory=dict)
    """The same for clients without a user name, beside what everyone may."""
    users: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """The same by user name."""

    def __post_init__(self) -> None:
        check_rules("everyone", self.everyone)
        check_rules("anonymous", self.anonymous)
        for user, rules in self.users.items():
            check_rules(f"users: {user}", rules)


def check_rules(where: str, rules: object) -> None:
    """Refuse what is no list of filters to read and write.

    Raises:
        EngineError: it is not; the message says what and where.
    """
    if not isinstance(rules, dict):
        raise EngineError(f"{where}: {rules!r} is no mapping with `read` and `write`")
    for word, filters in rules.items():
        if word not in ("read", "write"):
            raise EngineError(f"{where}: {word!r} is not known; there are `read` and `write`")
        if not isinstance(filters, list):
            raise EngineError(f"{where}, {word}: {filters!r} is no list of topic filters")
        for text in filters:
            fault = filter_fault(text) if isinstance(text, str) else "a filter is text"
            if fault is not None:
                raise EngineError(f"{where}, {word}: {text!r}: {fault}")


def covers(allowed: str, wanted: str) -> bool:
    """Whether every topic that the filter `wanted` matches is matched by the filter `allowed` too."""
    if wanted.startswith("$") and allowed[0] in "+#":
        return False  # [MQTT-4.7.2-1]
    if allowed == "+/#":
        return True  # every topic has a first level
    levels = wanted.split("/")
    for number, level in enumerate(allowed.split("/")):
        if level == "#":
            return True
        if number >= len(levels) or levels[number] == "#" or level not in ("+", levels[number]):
            return False
    return len(levels) == allowed.count("/") + 1


def filled_in(text: str, names: dict[str, str | None]) -> str | None:
    """A filter with the client's own names in it; None where it has no such name, or one that means something else."""
    levels = text.split("/")
    for number, level in enumerate(levels):
        if level in NAMES:
            name = names[level]
            if not name or any(character in name for character in "/+#"):
                return None
            levels[number] = name
    return "/".join(levels)


class AccessListPlugin(BaseTopicPlugin):
    """Allows what its list names, and nothing else."""

    Config = AccessListOptions

    def __init__(self, context: BaseContext) -> None:
        super().__init__(context)
        self.options: AccessListOptions = self.config
        self._filters: dict[tuple[str | None, str | None, str], tuple[str, ...]] = {}
        self._answers: dict[tuple[tuple[str, ...], str, bool], bool] = {}

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        """Whether a client may publish to a topic, subscribe to a filter or receive from a topic."""
        if session is None or not topic or action is None:
            return False
        filters = self._allowed(session.username, session.client_id, "write" if action is Action.PUBLISH else "read")
        is_filter = action is Action.SUBSCRIBE
        key = (filters, topic, is_filter)
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= MAX_REMEMBERED:
                self._answers.clear()
            compare = covers if is_filter else matches
            answer = self._answers[key] = any(compare(allowed, topic) for allowed in filters)
        return answer

    def _allowed(self, username: str | None, client_id: str | None, word: str) -> tuple[str, ...]:
        key = (username, client_id, word)
        filters = self._filters.get(key)
        if filters is None:
            if len(self._filters) >= MAX_REMEMBERED:
                self._filters.clear()
            options = self.options
            own: dict[str, Any] = options.users.get(username, {}) if username else options.anonymous
            names = {"%u": username, "%c": client_id}
            texts = (filled_in(text, names) for text in (*options.everyone.get(word, ()), *own.get(word, ())))
            filters = self._filters[key] = tuple(dict.fromkeys(text for text in texts if text is not None))
        return filters
