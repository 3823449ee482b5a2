"""Why a topic's retained message is sent or let wait: the question to the broker, and its answer in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from spark_jobs.dashboard import said
from spark_jobs.dashboard.payloads import number, read_object

REQUESTS: Final = "locus/retained/explain/"
ANSWERS: Final = "locus/retained/explained/"
MOST_BYTES: Final = 500
OUTCOMES: Final = {
    "open": "still waiting",
    "saved": "saved: a newer one came",
    "sent": "sent",
    "unknown": "ended before it was known",
}


class BadTopicError(ValueError):
    """It cannot be asked about; the message says why."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the broker knows of a topic.

    Args:
        topic: the topic.
        lines: its rule and its pace, a sentence each.
        decisions: its last decisions: when, how long it might wait, why, by which policy, and what became of it.
    """

    topic: str
    lines: tuple[str, ...]
    decisions: tuple[tuple[float, float, str, str, str], ...]


def question(topic: str, answers_to: str) -> str:
    """The topic to publish to, to ask about a topic.

    Raises:
        BadTopicError: nothing can be retained under it.
    """
    if not topic or any(character in topic for character in "+#\0") or len(topic.encode()) > MOST_BYTES:
        raise BadTopicError("Give one topic, without + and #.")
    if topic.startswith("$") or any(level.startswith("@") for level in topic.split("/")):
        raise BadTopicError("Give a topic that clients publish to, without message clauses.")
    return f"{REQUESTS}{topic}/@reply:{answers_to}"


def read_explanation(payload: bytes) -> Explanation | None:
    """The broker's answer; None for anything else, such as the receipt of a broker without the plugin."""
    content = read_object(payload)
    topic = content.get("explains") if content is not None else None
    if content is None or not isinstance(topic, str):
        return None
    lines = ["A message is retained." if content.get("retained") else "Nothing is retained."]
    rule, known = content.get("rule"), content.get("known")
    if isinstance(rule, dict):
        longest = said.milliseconds((number(rule.get("d_max_s")) or 0.0) * 1_000)
        policy, version = rule.get("policy"), rule.get("policy_version")
        decides = f"policy {policy}" if version in (policy, None) else f"policy {policy} {version}"
        lines.append(f"Rule {rule.get('filter')}: {decides} decides, waits of up to {longest}.")
    else:
        lines.append("No rule matches it, so it is sent to every subscriber at once.")
    if isinstance(known, dict):
        gaps, mean_s = number(known.get("gaps")) or 0, number(known.get("mean_gap_s"))
        age_s = number(known.get("age_s"))
        pace = f", one every {mean_s:.3g} s on average" if mean_s else ""
        since = f"; the last came {age_s:.3g} s ago" if age_s is not None else ""
        lines.append(f"{gaps:g} gaps between publishes are known{pace}{since}.")
    waiting = number(content.get("waiting")) or 0
    if waiting:
        lines.append(f"{waiting:g} subscribers wait for something newer now.")
    listed = content.get("decisions")
    decisions = [_decision(each) for each in (listed[:8] if isinstance(listed, list) else []) if isinstance(each, dict)]
    return Explanation(topic, tuple(lines), tuple(decisions))


def _decision(each: dict[str, Any]) -> tuple[float, float, str, str, str]:
    outcome = each.get("outcome")
    return (
        number(each.get("at_s")) or 0.0,
        number(each.get("wait_s")) or 0.0,
        str(each.get("reason", ""))[:120],
        str(each.get("policy_version", ""))[:40],
        OUTCOMES.get(outcome, "") if isinstance(outcome, str) else "",
    )
