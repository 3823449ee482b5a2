"""Retained messages in topic order, and a cursor that walks those a filter matches, a step at a time.

Topics are kept sorted level by level, which is the order a depth-first walk of the topic tree has. A cursor remembers
the last topic it gave, nothing else: it needs no copy of the topics, survives any change between two steps, and skips
whole branches that its filter cannot match by seeking past them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sortedcontainers import SortedDict

from broker_plugins.engine.topics import is_exact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker_plugins.engine.message import Message


class Retained:
    """One retained message; what replaces it takes its place here."""

    __slots__ = ("message",)

    def __init__(self, message: Message) -> None:
        self.message = message


def _key(topic: str) -> str:
    # NUL cannot stand in a topic and sorts before every other character, so levels compare one by one.
    return topic.replace("/", "\0")


def comes_after(topic: str, other: str) -> bool:
    """Whether a cursor gives a topic after another one; every topic comes after an empty text."""
    return _key(topic) > _key(other)


class RetainedMessages:
    """The retained message of each topic."""

    __slots__ = ("_sorted", "_topics", "bytes")

    def __init__(self) -> None:
        self._topics: dict[str, Retained] = {}
        self._sorted: SortedDict = SortedDict()  # key -> topic
        self.bytes = 0
        """How many bytes topics and payloads take."""

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __iter__(self) -> Iterator[Message]:
        return (entry.message for entry in self._topics.values())

    def get(self, topic: str) -> Retained | None:
        """The retained message of a topic."""
        return self._topics.get(topic)

    def put(self, message: Message) -> None:
        """Keep a message as the retained one of its topic [MQTT-3.3.1-5]."""
        entry = self._topics.get(message.topic)
        if entry is None:
            self._topics[message.topic] = Retained(message)
            self._sorted[_key(message.topic)] = message.topic
        else:
            self.bytes -= entry.message.size
            entry.message = message
        self.bytes += message.size

    def remove(self, topic: str) -> bool:
        """Forget the retained message of a topic [MQTT-3.3.1-10]; False if there was none."""
        entry = self._topics.pop(topic, None)
        if entry is None:
            return False
        del self._sorted[_key(topic)]
        self.bytes -= entry.message.size
        return True

    def after(self, key: str, inclusive: bool) -> str | None:
        """The first key at or after a place in the order."""
        return next(self._sorted.irange(minimum=key, inclusive=(inclusive, True)), None)


class Cursor:
    """Walks the retained topics that one filter matches, in their order, while they may change.

    Args:
        retained: where the topics are.
        text: the filter.
    """

    __slots__ = ("_at", "_levels", "_retained", "_seek", "text")

    def __init__(self, retained: RetainedMessages, text: str) -> None:
        self._retained = retained
        self.text = text
        self._levels = text.split("/")
        self._at: str | None = ""
        self._seek = True
        if is_exact(text):
            self._at = _key(text)
        elif self._levels[0] not in ("+", "#"):
            fixed: list[str] = []
            for level in self._levels:
                if level in ("+", "#"):
                    break
                fixed.append(level)
            self._at = "\0".join(fixed)

    def skip_to(self, topic: str) -> None:
        """Go on behind a topic that the cursor gave in a former life."""
        self._at, self._seek = _key(topic), False

    def skip_all(self) -> None:
        """Go to the end."""
        self._at = None

    def passed(self, topic: str) -> bool:
        """Whether the cursor is beyond a topic (or at its end): what it will not give any more."""
        if self._at is None:
            return True
        key = _key(topic)
        return key < self._at or (key == self._at and not self._seek)

    def next(self, most: int) -> tuple[list[str], bool]:
        """Up to `most` matching topics, and whether there may be more. Looks at no more than `8 × most` places."""
        found: list[str] = []
        looks = most * 8
        while len(found) < most and looks > 0:
            looks -= 1
            if self._at is None:
                return found, False
            key = self._retained.after(self._at, self._seek)
            if key is None:
                self._at = None
                return found, False
            seek = self._compare(key)
            if seek is None:
                found.append(key.replace("\0", "/"))
                self._at, self._seek = key, False
                if is_exact(self.text):
                    self._at = None
            elif seek:
                self._at, self._seek = seek, True
            else:
                self._at = None
        return found, self._at is not None

    def _compare(self, key: str) -> str | None:
        """None if a key matches, the next key that might, or an empty text if none can any more."""
        levels = key.split("\0")
        wanted = self._levels
        if levels[0].startswith("$") and wanted[0] in ("+", "#"):
            return "%"  # past everything that starts with $ [MQTT-4.7.2-1]
        for number, level in enumerate(wanted):
            if level == "#":
                return None
            if number >= len(levels):
                return key + "\0"  # too short: its children may match
            if level == "+":
                continue
            if levels[number] != level:
                if levels[number] < level:
                    return "\0".join([*levels[:number], level])
                return self._past(levels, number)
        if len(levels) == len(wanted):
            return None
        return self._past(levels, len(wanted))  # too deep: past this branch

    def _past(self, levels: list[str], depth: int) -> str:
        """The first key after the branch `levels[:depth]`, backing up to a level that is free to change."""
        if all(level not in ("+", "#") for level in self._levels[:depth]):
            return ""  # nothing before it is free: no later key can match
        return "\0".join(levels[:depth]) + "\x01"
