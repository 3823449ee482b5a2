"""Message clauses: what a publisher says about a message in the last level of its topic.

A clause level starts with `@`, and a `reply:` clause names a topic, which has levels of its own. So the clauses begin
at the first level that looks like a clause (`@word:`) and run to the end of the topic. Any other level that starts with
`@`, such as `@alice`, is an ordinary one: clients that know nothing of clauses go on using their topics.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_plugins.grammar.areas import Box, Position, read_box, read_position, write_box
from broker_plugins.grammar.errors import GrammarError, quoted
from broker_plugins.grammar.limits import DEFAULT_LIMITS, Limits
from broker_plugins.grammar.quantities import format_duration, format_number, read_duration
from broker_plugins.grammar.space import WGS84
from broker_plugins.grammar.spans import spans
from broker_plugins.grammar.topics import MQTT_STRING_BYTES, check_string, check_topic

if TYPE_CHECKING:
    from broker_plugins.grammar.space import Space

_BEGINNING = re.compile(r"/@(?=[A-Za-z]+:)")
_WHOLE_NUMBER = re.compile(r"[0-9]+")
_FORMS = {"at": "at:LON,LAT", "area": "area:W,S,E,N", "top": "top:K", "ttl": "ttl:250ms", "reply": "reply:TOPIC"}


@dataclass(frozen=True, slots=True)
class Clauses:
    """What the clauses of a message say.

    Attributes:
        at: Where it happened.
        area: Where it matters.
        top: To how many of the most accurate matches it goes.
        ttl: For how many seconds it is worth having.
        reply: To which topic a receipt of who matched is sent.
    """

    at: Position | None = None
    area: Box | None = None
    top: int | None = None
    ttl: float | None = None
    reply: str | None = None


NO_CLAUSES = Clauses()


def may_have_clauses(topic: str) -> bool:
    """The one cheap check that most topics fail: only a topic that passes it can have clauses."""
    return "/@" in topic


def bare_topic(topic: str) -> str:
    """The topic without its clauses, which are not looked at: the one access control has to judge."""
    if "/@" not in topic:
        return topic
    found = _BEGINNING.search(topic)
    return topic if found is None else topic[: found.start()]


def parse_topic(topic: str, space: Space = WGS84, limits: Limits = DEFAULT_LIMITS) -> tuple[str, Clauses]:
    """Split the topic of a PUBLISH into the topic proper and its clauses.

    The topic proper is not checked: that it is a topic name is the business of whoever decoded the packet.

    Args:
        topic: The topic as the client sent it.
        space: The space in which coordinates lie.
        limits: How large the clauses may be.

    Returns:
        The topic to match and deliver under, and the clauses: `NO_CLAUSES` if it has none.

    Raises:
        GrammarError: If there are clauses and they do not parse or exceed a limit.
    """
    if "/@" not in topic:
        return topic, NO_CLAUSES
    found = _BEGINNING.search(topic)
    if found is None:
        return topic, NO_CLAUSES
    if found.start() == 0:
        raise GrammarError(topic, 0, "a topic is missing before the clauses")
    at = area = top = ttl = reply = None
    said = set()
    for start, end in spans(topic, found.end(), len(topic), ";"):
        colon = topic.find(":", start, end)
        name = topic[start : end if colon < 0 else colon]
        if name in said:
            raise GrammarError(topic, start, f"{quoted(name)} is said twice: keep one")
        said.add(name)
        if name not in _FORMS:
            raise GrammarError(
                topic, start, f"{quoted(name)} is not a clause: one of {', '.join(_FORMS.values())} belongs here"
            )
        if colon < 0:
            raise GrammarError(topic, end, f"'{name}' alone is no clause: write {_FORMS[name]}")
        value = colon + 1
        if name != "reply" and (slash := topic.find("/", value, end)) >= 0:
            raise GrammarError(topic, slash, "the clauses end the topic: only a reply topic in them can have levels")
        if name == "at":
            at = read_position(topic, value, end, space)
        elif name == "top":
            top = _read_top(topic, value, end, limits)
        elif name == "area":
            area = read_box(topic, value, end, space)
        elif name == "ttl":
            ttl = read_duration(topic, value, end, "ttl")
        else:
            reply = _read_reply(topic, value, end)
    return topic[: found.start()], Clauses(at, area, top, ttl, reply)


def build_topic(topic: str, clauses: Clauses, space: Space = WGS84, limits: Limits = DEFAULT_LIMITS) -> str:
    """Write the topic of a message with its clauses, in the order at, area, top, ttl, reply.

    Raises:
        GrammarError: If what would be written does not parse, for example for a latitude of 91.
        ValueError: If what would be written parses to something else, for example for a topic that ends in clauses.
    """
    written = []
    if clauses.at is not None:
        written.append(f"at:{format_number(clauses.at.lon)},{format_number(clauses.at.lat)}")
    if clauses.area is not None:
        written.append(f"area:{write_box(clauses.area)}")
    if clauses.top is not None:
        written.append(f"top:{clauses.top}")
    if clauses.ttl is not None:
        written.append(f"ttl:{format_duration(clauses.ttl)}")
    if clauses.reply is not None:
        written.append(f"reply:{clauses.reply}")
    text = f"{topic}/@{';'.join(written)}" if written else topic
    check_string(text, MQTT_STRING_BYTES, "a topic")
    check_topic(text, 0, len(topic), "a topic")
    if parse_topic(text, space, limits) != (topic, clauses):
        raise ValueError(f"topic {topic!r} cannot carry {clauses!r}: {text!r} means something else")
    return text


def _read_top(text: str, start: int, end: int, limits: Limits) -> int:
    found = _WHOLE_NUMBER.match(text, start, end)
    stop = start if found is None else found.end()
    if stop != end or start == end:
        raise GrammarError(text, stop, "top must be a whole number such as 3")
    # Compared by digits first: nobody needs the value of a number of a thousand digits.
    digits = text[start:end].lstrip("0")
    if len(digits) > len(str(limits.top)) or int(digits or "0") > limits.top:
        raise GrammarError(text, start, f"top is more than the {limits.top} allowed")
    if not digits:
        raise GrammarError(text, start, "top must be at least 1: a message for nobody need not be sent")
    return int(digits)


def _read_reply(text: str, start: int, end: int) -> str:
    check_topic(text, start, end, "a reply topic")
    if text[start] == "$":
        raise GrammarError(text, start, "a reply topic must not begin with '$': these belong to the broker")
    reply = text[start:end]
    if "/@" in reply and (nested := _BEGINNING.search(reply)) is not None:
        raise GrammarError(text, start + nested.start() + 1, "a reply topic cannot have clauses itself")
    return reply
