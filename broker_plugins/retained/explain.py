"""Why the retained message of a topic was sent or let wait: the answer to `locus retained explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from broker_plugins.retained.decisions import Decision
    from broker_plugins.retained.rules import Rule
    from broker_plugins.retained.topics import Topic

REQUESTS: Final = "locus/retained/explain/"
"""A message to this and a topic, with a `reply:` clause, asks about the topic."""


def explanation(
    name: str, *, retained: bool, rule: Rule | None, topic: Topic | None, waiting: int, now_s: float
) -> bytes:
    """What is known of a topic, its rule and its last decisions, newest first, as JSON. It names no client."""
    answer: dict[str, Any] = {"explains": name, "retained": retained, "waiting": waiting, "rule": None, "known": None}
    if rule is not None:
        answer["rule"] = {
            "filter": rule.text,
            "d_max_s": rule.cost.d_max_s,
            "kappa": rule.cost.kappa,
            "policy": rule.policy.name,
            "policy_version": rule.policy.version,
        }
    if topic is not None:
        answer["known"] = {
            "gaps": len(topic.gaps),
            "mean_gap_s": topic.gaps.mean_s,
            "variation": topic.gaps.variation,
            "age_s": topic.gaps.age_s(now_s),
        }
    answer["decisions"] = [] if topic is None else [_described(each) for each in reversed(topic.decisions)]
    return msgspec.json.encode(answer)


def _described(decision: Decision) -> dict[str, Any]:
    return {
        "at_s": decision.at_s,
        "wait_s": decision.wait_s,
        "reason": decision.reason,
        "policy_version": decision.policy_version,
        "features": decision.features,
        "outcome": outcome_of(decision),
        "residual_s": decision.residual_s,
    }


def outcome_of(decision: Decision) -> str:
    """What came of a decision, in one word: `open`, `saved`, `sent` or `unknown`."""
    if decision.wait_s <= 0:
        return "sent"
    if not decision.closed:
        return "open"
    if decision.residual_s is not None and decision.residual_s <= decision.wait_s:
        return "saved"
    return "sent" if decision.observed_s >= decision.wait_s else "unknown"
