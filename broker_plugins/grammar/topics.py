"""Ordinary MQTT topic names and topic filters, as MQTT 3.1.1 section 4.7 has them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from broker_plugins.grammar.errors import GrammarError

if TYPE_CHECKING:
    from broker_plugins.grammar.limits import Limits

MQTT_STRING_BYTES = 65_535

# What attributes, fences and clauses are called: ASCII letters, digits, `_` and `-`, and every character beyond ASCII
# that is neither a space nor a control, so that members named in any script can be reached.
NAME_CHARACTER = r"(?:[A-Za-z0-9_-]|[^\x00-\x9f\s])"
FENCE_NAME = re.compile(rf"(?:{NAME_CHARACTER}|\.)+")
NAME = re.compile(rf"{NAME_CHARACTER}+")


def check_string(text: str, most_bytes: int, what: str) -> None:
    """Refuse what MQTT cannot carry as a string, or what is longer than allowed."""
    nul = text.find("\0")
    if nul >= 0:
        raise GrammarError(text, nul, f"{what} must not contain the null character")  # [MQTT-4.7.3-2]
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:  # [MQTT-1.5.3-1]
        raise GrammarError(text, error.start, f"{what} must be valid Unicode, without surrogates") from None
    most = min(most_bytes, MQTT_STRING_BYTES)  # [MQTT-4.7.3-3]
    if size > most:
        kept = len(text.encode()[:most].decode(errors="ignore"))
        raise GrammarError(text, kept, f"{what} has {size} bytes, more than the {most} allowed")


def check_filter(text: str, start: int, limits: Limits) -> None:
    """Check that `text[start:]` is an ordinary topic filter. The string as a whole has been checked before."""
    if start == len(text):
        raise GrammarError(text, start, "a topic filter must have at least one character")  # [MQTT-4.7.3-1]
    levels = text[start:].split("/")
    if len(levels) > limits.levels:
        beyond = start + sum(map(len, levels[: limits.levels])) + limits.levels
        raise GrammarError(text, beyond, f"the filter has {len(levels)} levels, more than the {limits.levels} allowed")
    position = start
    for level in levels:
        if "#" in level:
            wildcard = position + level.index("#")
            if level != "#":
                raise GrammarError(text, wildcard, "'#' must be a level of its own")  # [MQTT-4.7.1-2]
            if wildcard != len(text) - 1:
                raise GrammarError(text, wildcard, "'#' must be the last level")  # [MQTT-4.7.1-2]
        if "+" in level and level != "+":
            wildcard = position + level.index("+")
            raise GrammarError(text, wildcard, "'+' must be a level of its own")  # [MQTT-4.7.1-3]
        position += len(level) + 1


def check_topic(text: str, start: int, end: int, what: str) -> None:
    """Check that `text[start:end]` is an ordinary topic name, which has no wildcards."""
    if start == end:
        raise GrammarError(text, start, f"{what} must have at least one character")  # [MQTT-4.7.3-1]
    for forbidden, reason in (("+", "a wildcard"), ("#", "a wildcard"), ("\0", "the null character")):
        found = text.find(forbidden, start, end)
        if found >= 0:
            raise GrammarError(text, found, f"{what} must not contain {reason}")  # [MQTT-3.3.2-2], [MQTT-4.7.3-2]
