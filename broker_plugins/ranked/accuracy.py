"""Accuracy: how narrow a subscription is over the attributes that are declared for a topic. Narrower is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker_plugins.engine.topics import matches
from broker_plugins.places import BadRuleError, check_filter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spatial_index.interval import Interval

MOST_DECLARED = 16
"""As many attributes as the index has room for."""


@dataclass(slots=True, frozen=True, eq=False)
class TopicRule:
    """What is declared for the topics of a filter.

    Attributes:
        text: the filter.
        domains: the attributes that rank, with the lowest and the highest value each takes.
        top: to how many receivers a message goes that does not say so itself; None for all.
    """

    text: str
    domains: dict[str, tuple[float, float]]
    top: int | None = None

    @classmethod
    def of(cls, text: str, options: Mapping[str, Any]) -> TopicRule:
        """A rule as the configuration has it: `attributes`, each with its domain `[low, high]`, and `top`.

        Raises:
            BadRuleError: it is something else.
        """
        check_filter(text, "topics")
        unknown = sorted(set(options) - {"attributes", "top"})
        if unknown:
            raise BadRuleError(f"topics: {text!r} has {unknown}; only attributes and top are known")
        domains: dict[str, tuple[float, float]] = {}
        for name, domain in dict(options.get("attributes") or {}).items():
            try:
                low, high = (float(end) for end in domain)
            except (TypeError, ValueError):
                raise BadRuleError(f"topics: {text!r}: the domain of {name!r} is {domain!r}, not [low, high]") from None
            if not low < high or high - low == float("inf"):
                raise BadRuleError(f"topics: {text!r}: the domain of {name!r} is {domain!r}; low must be below high")
            domains[name] = (low, high)
        if len(domains) > MOST_DECLARED:
            raise BadRuleError(f"topics: {text!r} declares {len(domains)} attributes; {MOST_DECLARED} are the most")
        top = options.get("top")
        if top is not None and (top.__class__ is not int or top < 1):
            raise BadRuleError(f"topics: {text!r}: top is {top!r}; it is a whole number of at least 1")
        return cls(text, domains, top)

    def accuracy(self, box: Mapping[str, Interval]) -> float:
        """The product of the shares of their domains that intervals cover; an attribute not mentioned counts 1."""
        product = 1.0
        for name, (low, high) in self.domains.items():
            interval = box.get(name)
            if interval is not None:
                covered = min(interval.high, high) - max(interval.low, low)
                product *= max(0.0, covered) / (high - low)
        return product


NOTHING_DECLARED = TopicRule("#", {})


def rule_for(rules: Sequence[TopicRule], topic: str) -> TopicRule:
    """The first rule whose filter matches a topic."""
    return next((rule for rule in rules if matches(rule.text, topic)), NOTHING_DECLARED)
