"""`locus retained explain TOPIC`: why the retained message of a topic is sent at once, or let wait."""

from __future__ import annotations

import json
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any

from clients.errors import NoAnswerError
from clients.options import UsageError, add_connection, client_from, guarded

if TYPE_CHECKING:
    import argparse

    from clients.messages import Message

REQUESTS = "locus/retained/explain/"
ANSWERS = "locus/retained/explained/"
OUTCOMES = {
    "open": "still waiting",
    "saved": "something newer came after {residual_s:.2f} s, so it was not sent",
    "sent": "sent",
    "unknown": "ended before the outcome was known",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `locus retained`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    words = "show a topic's rule, what is known of it, and the last decisions"
    explain = actions.add_parser("explain", help=words, description=words[0].upper() + words[1:] + ".")
    explain.add_argument("topic", metavar="TOPIC", help="such as vehicles/7/pos")
    explain.add_argument("--json", action="store_true", help="print the broker's answer as it is")
    add_connection(explain)


def run(arguments: argparse.Namespace) -> int:
    """Ask, print, and return 0."""
    return guarded(f"retained {arguments.action}", lambda: _explain(arguments))


def _explain(arguments: argparse.Namespace) -> int:
    answered = threading.Event()
    answers: list[Message] = []

    def take(message: Message) -> None:
        answers.append(message)
        answered.set()

    reply = ANSWERS + secrets.token_hex(8)
    with client_from(arguments) as client:
        client.subscribe(reply, take, qos=1)
        client.publish(REQUESTS + arguments.topic, None, reply=reply, qos=1)
        if not answered.wait(arguments.timeout):
            raise NoAnswerError(
                f"no answer within {arguments.timeout:g} s: the broker runs without its retained plugin, or this "
                f"client may not receive {arguments.topic!r}, publish to {REQUESTS}# or publish to {ANSWERS}#"
            )
    answer: dict[str, Any] = json.loads(answers[0].payload)
    if "explains" not in answer:  # the receipt that any message with a reply: clause gets
        raise UsageError("the broker runs without its retained plugin: add it to `plugins:`")
    print(answers[0].payload.decode() if arguments.json else described(answer, time.time()))
    return 0


def described(answer: dict[str, Any], now_s: float) -> str:
    """The broker's answer in words."""
    topic, rule, known = answer["explains"], answer["rule"], answer["known"]
    lines = [f"{topic}: {'a message is retained' if answer['retained'] else 'nothing is retained'}"]
    if rule is None:
        lines.append("  no rule matches it: what is retained is sent to every subscriber at once")
        return "\n".join(lines)
    lines.append(
        f"  rule {rule['filter']}: {_policy(rule)} decides; waits of up to {rule['d_max_s']:g} s, "
        f"{1 / rule['kappa']:g} s of them worth one message"
    )
    if known is None:
        lines.append("  nothing was published to it since the broker started: subscribers are sent to at once")
    elif known["mean_gap_s"] is None:
        lines.append(f"  published once, {known['age_s']:.1f} s ago")
    else:
        lines.append(
            f"  published {known['age_s']:.1f} s ago; the last {known['gaps']} gaps are {known['mean_gap_s']:.2f} s on "
            f"average, varying by {known['variation']:.0%}"
        )
    lines.append(f"  subscribers waiting: {answer['waiting']}")
    lines += [_decision(each, now_s) for each in answer["decisions"]]
    return "\n".join(lines)


def _policy(rule: dict[str, Any]) -> str:
    name, version = rule["policy"], rule["policy_version"]
    return f"the policy {name}" if name == version else f"the {name} policy {version}"


def _decision(each: dict[str, Any], now_s: float) -> str:
    outcome = OUTCOMES[each["outcome"]].format(residual_s=each["residual_s"] or 0.0)
    ago = max(now_s - each["at_s"], 0.0)
    if each["wait_s"] <= 0:
        return f"  {ago:.1f} s ago: sent at once ({each['reason']})"
    return f"  {ago:.1f} s ago: wait up to {each['wait_s']:.2f} s ({each['reason']}); {outcome}"
