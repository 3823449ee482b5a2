"""Smart filters: the prefixes `$geo/`, `$where/` and `$share/` before an ordinary topic filter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_plugins.grammar.areas import Geo, read_geo, write_geo
from broker_plugins.grammar.errors import GrammarError
from broker_plugins.grammar.intervals import Where, read_where, write_where
from broker_plugins.grammar.limits import DEFAULT_LIMITS, Limits
from broker_plugins.grammar.space import WGS84
from broker_plugins.grammar.topics import check_filter, check_string

if TYPE_CHECKING:
    from broker_plugins.grammar.space import Space

_NEEDS = {
    "$geo": "an area: $geo/bbox:W,S,E,N/<filter>",
    "$where": "conditions: $where/age=20..25/<filter>",
    "$share": "a group: $share/<group>/<filter>",
}


@dataclass(frozen=True, slots=True)
class SmartFilter:
    """What a client subscribes to: an ordinary filter, and what the prefixes before it say.

    Attributes:
        inner: The ordinary topic filter, to which access control applies.
        geo: Where a message must be, if that matters.
        where: In which intervals numbers of its payload must lie, if that matters.
        share: The group of subscribers that share the messages, if any.
    """

    inner: str
    geo: Geo | None = None
    where: Where | None = None
    share: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is an ordinary filter without any prefix."""
        return self.geo is None and self.where is None and self.share is None


def is_smart(text: str) -> bool:
    """Whether a filter begins with one of the prefixes; cheap, and no promise that it parses."""
    return text.startswith("$") and text.partition("/")[0] in _NEEDS


def inner_filter(text: str) -> str:
    """The ordinary filter that is left when all prefixes are removed: the one access control has to judge.

    What the prefixes say is not looked at, and the ordinary filter is not checked. For every text that `parse_filter`
    accepts, this is the `inner` it finds.

    Raises:
        GrammarError: If a prefix is repeated or incomplete.
    """
    return text[_prefixes(text)[1] :]


def parse_filter(text: str, space: Space = WGS84, limits: Limits = DEFAULT_LIMITS) -> SmartFilter:
    """Parse what a client asks to subscribe to.

    A filter without prefixes is checked as MQTT 3.1.1 section 4.7 wants. So are filters that begin with any other
    `$` word, such as `$SYS/#`.

    Args:
        text: The filter as the client sent it.
        space: The space in which its coordinates lie.
        limits: How large it may be.

    Raises:
        GrammarError: If it does not parse or exceeds a limit.
    """
    check_string(text, limits.filter_bytes, "a filter")
    prefixes, inner = _prefixes(text)
    geo = where = share = None
    for word, (start, end) in prefixes.items():
        if word == "$geo":
            geo = read_geo(text, start, end, space, limits)
        elif word == "$where":
            where = read_where(text, start, end, limits)
        else:
            share = text[start:end]
            if len(share) > limits.name_characters:
                raise GrammarError(
                    text,
                    start + limits.name_characters,
                    f"the group has more than {limits.name_characters} characters",
                )
    check_filter(text, inner, limits)
    return SmartFilter(text[inner:], geo, where, share)


def build_filter(smart: SmartFilter, space: Space = WGS84, limits: Limits = DEFAULT_LIMITS) -> str:
    """Write a filter in its one canonical form, which parses to an equal `SmartFilter`.

    The prefixes come in the order `$share`, `$geo`, `$where`; attributes are sorted; numbers are as short as they can
    be; `detect=inside` is left out.

    Raises:
        GrammarError: If what would be written does not parse, for example for a latitude of 91.
        ValueError: If what would be written parses to something else, for example for a fence named
            `harbour;detect=exit`.
    """
    parts = []
    if smart.share is not None:
        parts += ["$share", smart.share]
    if smart.geo is not None:
        parts += ["$geo", write_geo(smart.geo)]
    if smart.where is not None:
        parts += ["$where", write_where(smart.where)]
    text = "/".join([*parts, smart.inner])
    if parse_filter(text, space, limits) != smart:
        raise ValueError(f"{smart!r} cannot be written as a filter: {text!r} means something else")
    return text


def canonical_filter(text: str, space: Space = WGS84, limits: Limits = DEFAULT_LIMITS) -> str:
    """The canonical form of a filter: two filters that ask for the same in different words have the same.

    It is for sharing work between subscriptions. It is not for UNSUBSCRIBE, which compares filters character by
    character [MQTT-3.10.4-1]: a client leaves with the string it came with.

    Raises:
        GrammarError: If the filter does not parse or exceeds a limit.
    """
    return build_filter(parse_filter(text, space, limits), space, limits)


def _prefixes(text: str) -> tuple[dict[str, tuple[int, int]], int]:
    """Where the arguments of the prefixes begin and end, by prefix, and where the inner filter begins."""
    found: dict[str, tuple[int, int]] = {}
    position = 0
    while text.startswith("$", position):
        slash = text.find("/", position)
        word = text[position : len(text) if slash < 0 else slash]
        if word not in _NEEDS:
            break  # an ordinary filter that begins with `$`, such as $SYS/#
        if word in found:
            raise GrammarError(text, position, f"{word} is said twice: keep one")
        start = slash + 1
        if slash < 0 or start == len(text) or text[start] == "/":
            raise GrammarError(text, len(text) if slash < 0 else start, f"{word} needs {_NEEDS[word]}")
        end = text.find("/", start)
        if end < 0:
            end = len(text)
        for wildcard in "+#":
            at = text.find(wildcard, start, end)
            if at >= 0:
                raise GrammarError(
                    text, at, f"'{wildcard}' cannot stand in what {word} says, only in the filter after it"
                )
        found[word] = (start, end)
        if end >= len(text) - 1:
            raise GrammarError(text, len(text), f"a filter is missing after {word}: for example {word}/…/vehicles/#")
        position = end + 1
    return found, position
