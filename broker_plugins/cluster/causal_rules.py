"""Which topics are causal groups, as the operator wrote it: `causal: {"av/#": 250ms}`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from broker_plugins.engine import EngineError
from broker_plugins.engine.topics import filter_fault
from broker_plugins.grammar import GrammarError
from broker_plugins.grammar.quantities import read_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

SHORTEST_US: Final = 1_000
LONGEST_US: Final = 600_000_000
"""Lifetimes a group may have: a millisecond to ten minutes."""


@dataclass(slots=True, frozen=True)
class GroupRule:
    """One causal group.

    Args:
        filter: the topics in it.
        lifetime_us: Δ, how long a message of it is worth delivering.
    """

    filter: str
    lifetime_us: int


def read_rules(causal: Mapping[str, Any]) -> tuple[GroupRule, ...]:
    """The groups in the order in which they were written.

    Raises:
        EngineError: a filter is none, or a lifetime cannot be read; the message names it.
    """
    return tuple(GroupRule(_filter(text), _lifetime_us(text, life)) for text, life in causal.items())


def digest(rules: tuple[GroupRule, ...]) -> str:
    """The same on two nodes only if they have the same groups: first matches depend on the order too."""
    text = "\n".join(f"{rule.filter} {rule.lifetime_us}" for rule in rules)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _filter(text: str) -> str:
    fault = filter_fault(text)
    if fault is None and text.startswith("$"):
        fault = "messages to topics that start with $ do not leave their node; write the ordinary filter of the topics"
    if fault is not None:
        raise EngineError(f"causal: {text!r} is no topic filter for a group: {fault}")
    return text


def _lifetime_us(text: str, life: object) -> int:
    if not isinstance(life, str):
        raise EngineError(f"causal: the lifetime {life!r} of {text!r} is no text with a unit: write 250ms, 2s or 1m")
    try:
        lifetime_us = round(read_duration(life, 0, len(life), "a lifetime") * 1e6)
    except GrammarError as error:
        raise EngineError(f"causal: the lifetime {life!r} of {text!r} cannot be read: {error}") from error
    if not SHORTEST_US <= lifetime_us <= LONGEST_US:
        raise EngineError(f"causal: the lifetime {life!r} of {text!r} is outside 1ms..10m")
    return lifetime_us
