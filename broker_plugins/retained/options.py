"""What an operator can set of the retained plugin, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from broker_plugins.places import BadRuleError


@dataclass
class RetainedOptions:
    """Options of `broker_plugins.retained.plugin.RetainedPlugin`."""

    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By topic filter, the first that matches: `d_max_s`, the longest wait in seconds (10), `kappa`, what a second of
    waiting costs in retained messages (0.2), `policy`, one of `send`, `renewal` (if not said) and `learned`,
    `policy_file` if it is not the common one, and `prior_gap_s`, the gap expected of a topic not known yet (60). A
    topic that no filter matches is sent at once, as MQTT says."""
    policy_file: str = ""
    """The file of learned policies; read again when it changes. Until one can be used, the renewal rule decides."""
    policy_poll_s: float = 5.0
    """Time between two looks at the policy files."""
    max_topics: int = 10_000
    """Topics whose gaps are remembered, about 2 KB each; the one longest without a publish makes room."""
    max_debts: int = 100_000
    """Subscribers waiting for a topic; one more is sent to at once."""
    max_debts_per_client: int = 10_000
    """Topics one client waits for; one more is sent at once."""
    max_open_decisions: int = 50_000
    """Decisions whose outcome is watched for; at the bound the one nearest its end is closed early."""

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name.startswith("max_") and value < 1:
                raise BadRuleError(f"{option.name}: {value} is too small; it is at least 1")
        if self.policy_poll_s <= 0:
            raise BadRuleError(f"policy_poll_s: {self.policy_poll_s} is too small; it is above 0")


@dataclass(slots=True)
class RetainedCounters:
    """What the retained plugin did."""

    decisions: int = 0
    """Retained messages that a policy was asked about."""
    deferred: int = 0
    """Those that were let wait."""
    saved: int = 0
    """Waits that ended with a newer message: the old one was never sent."""
    sent_at_deadline: int = 0
    """Waits that ended with the retained message because nothing newer came in time."""
    sent_before_live: int = 0
    """Waits that ended with the retained message because a live one was about to overtake it."""
    cancelled: int = 0
    """Waits that ended because the message was removed, or its subscriber left."""
    overflowed: int = 0
    """Retained messages sent at once because `max_debts` or `max_debts_per_client` was reached."""
    overtaken: int = 0
    """Waits given up because there was no room for the retained message but for a newer live one."""
    put_off: int = 0
    """Times a retained message was due and its client's queue had no room; it is tried again."""
    topics_evicted: int = 0
    """Topics forgotten because `max_topics` was reached."""
    censored: int = 0
    """Decisions closed before their outcome was known."""
    policies_loaded: int = 0
    """Policy files taken into use."""
    policies_refused: int = 0
    """Policy files that could not be used; the policy in use stayed."""
    explained: int = 0
    """Requests to explain a topic that were answered."""
