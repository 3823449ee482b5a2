"""Topic names and topic filters: what is well formed, and what matches what (MQTT 3.1.1, section 4.7)."""

from __future__ import annotations

from broker_plugins.engine.errors import ProtocolViolation


def decode_utf8(raw: bytes, where: str) -> str:
    """Text as the standard wants it: well-formed UTF-8 without U+0000 [MQTT-1.5.3-1] [MQTT-1.5.3-2]."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise ProtocolViolation("MQTT-1.5.3-1", f"{where}: bytes that are not UTF-8 at {error.start}") from None
    if "\0" in text:
        raise ProtocolViolation("MQTT-1.5.3-2", f"{where}: U+0000 in {text[:80]!r}")
    return text


def check_topic_name(raw: bytes) -> str:
    """The text of a topic name that a message may be published to."""
    if not raw:
        raise ProtocolViolation("MQTT-4.7.3-1", "an empty topic name")
    topic = decode_utf8(raw, "topic name")
    if "+" in topic or "#" in topic:
        raise ProtocolViolation("MQTT-3.3.2-2", f"a wildcard in the topic name {topic[:80]!r}")
    return topic


def filter_fault(text: str) -> str | None:
    """What is wrong with a topic filter, in words; None if it is well formed."""
    if not text:
        return "[MQTT-4.7.3-1] a filter has at least one character"
    if "#" in text or "+" in text:
        levels = text.split("/")
        for number, level in enumerate(levels):
            if "#" in level and (level != "#" or number != len(levels) - 1):
                return "[MQTT-4.7.1-2] '#' stands alone in the last level"
            if "+" in level and level != "+":
                return f"[MQTT-4.7.1-3] '+' stands alone in its level, not in {level!r}"
    return None


def matches(text: str, topic: str) -> bool:
    """Whether a filter matches a topic name, level by level: the reference that the tree is checked against."""
    if topic.startswith("$") and text[0] in "+#":
        return False  # [MQTT-4.7.2-1]
    levels = topic.split("/")
    wanted = text.split("/")
    for number, level in enumerate(wanted):
        if level == "#":
            return True  # the parent level too [MQTT-4.7.1-2]
        if number >= len(levels) or level not in ("+", levels[number]):
            return False
    return len(wanted) == len(levels)


def is_exact(text: str) -> bool:
    """Whether a filter has no wildcard and so matches one topic only."""
    return "+" not in text and "#" not in text
