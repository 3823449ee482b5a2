"""Which topics may wait, for how long, and who decides it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from broker_plugins.engine.topics import filter_fault, matches
from broker_plugins.places import BadRuleError
from broker_plugins.retained.policy_source import PolicySource
from rl_policy import CostModel, ExponentialPrior, RenewalPolicy, SendPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_policy import Policy

MEMBERS: Final = ("d_max_s", "kappa", "policy", "policy_file", "prior_gap_s")
POLICIES: Final = ("send", "renewal", "learned")
_DEFAULT: Final = CostModel()
_PRIOR: Final = ExponentialPrior()
_SEND: Final = SendPolicy()
_RENEWAL: Final = RenewalPolicy()


@dataclass(slots=True, frozen=True)
class Rule:
    """What holds for the topics of one filter.

    Args:
        text: the filter.
        cost: the longest wait, and what waiting costs.
        fixed: the policy that decides, unless there is a source.
        source: where a learned policy comes from.
        prior: what is believed of a topic's gaps before they are known.
    """

    text: str
    cost: CostModel
    fixed: Policy
    source: PolicySource | None = None
    prior: ExponentialPrior = _PRIOR

    @property
    def policy(self) -> Policy:
        """The policy that decides now: the renewal rule while no learned one can be used."""
        learned = None if self.source is None else self.source.policy
        return self.fixed if learned is None else learned


def rule_of(text: str, members: Mapping[str, Any], policy_file: str) -> Rule:
    """A rule as the configuration says it.

    Raises:
        BadRuleError: it cannot be used.
    """
    fault = filter_fault(text)
    if fault is not None:
        raise BadRuleError(f"topics: {text!r}: {fault}")
    for name in members:
        if name not in MEMBERS:
            raise BadRuleError(f"topics: {text!r}: {name!r} is none of {', '.join(MEMBERS)}")
    try:
        cost = CostModel(float(members.get("kappa", _DEFAULT.kappa)), float(members.get("d_max_s", _DEFAULT.d_max_s)))
        prior = ExponentialPrior(gap_s=float(members.get("prior_gap_s", _PRIOR.gap_s)))
    except (TypeError, ValueError) as error:  # a CostModelError is one
        raise BadRuleError(f"topics: {text!r}: {error}") from None
    policy = members.get("policy", "renewal")
    if policy not in POLICIES:
        raise BadRuleError(f"topics: {text!r}: policy: {policy!r} is none of {', '.join(POLICIES)}")
    file = str(members.get("policy_file", policy_file))
    if policy != "learned":
        return Rule(text, cost, _SEND if policy == "send" else _RENEWAL, prior=prior)
    if not file:
        raise BadRuleError(f"topics: {text!r}: policy: learned needs a policy_file, here or for all topics")
    return Rule(text, cost, _RENEWAL, PolicySource(Path(file), cost), prior)


def rule_for(rules: Sequence[Rule], topic: str) -> Rule | None:
    """The first rule that matches a topic; None where it has not opted in."""
    for rule in rules:
        if matches(rule.text, topic):
            return rule
    return None
