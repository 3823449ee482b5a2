"""What an operator can set of the ranked plugin, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from broker_plugins.places import MAX_JSON_BYTES, BadRuleError, PayloadCounters


@dataclass
class RankedOptions:
    """Options of `broker_plugins.ranked.plugin.RankedPlugin`."""

    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By topic filter, the first that matches: `attributes` that rank, each with its domain `[low, high]`, and `top`,
    to how many receivers a message goes that does not say so."""
    name_receivers: bool = False
    """Whether receipts tell the client identifiers of receivers."""
    max_receipt_receivers: int = 1_000
    """Receivers that one receipt lists; it always tells how many there are."""
    max_json_bytes: int = MAX_JSON_BYTES
    """Largest payload that is looked into for numbers; a larger one has none."""
    max_topics: int = 65_536
    """Topics whose filters are remembered between messages; all are forgotten and found anew when there are more."""

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name.startswith("max_") and value < 1:
                raise BadRuleError(f"{option.name}: {value} is too small; it is at least 1")


@dataclass(slots=True)
class RankedCounters(PayloadCounters):
    """What the ranked plugin did."""

    subscriptions: int = 0
    """`$where` subscriptions without `$geo` there are."""
    filters: int = 0
    """Inner filters they have."""
    messages: int = 0
    """Messages whose numbers were matched."""
    cut: int = 0
    """Messages that went to the k best receivers only."""
    passed_over: int = 0
    """Receivers passed over because they could not get a message, or may not."""
    receipts: int = 0
    """Receipts sent."""
