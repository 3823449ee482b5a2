"""The gate: a learned policy passes only if it is not worse than the renewal rule, overall and for each class of topic.

It is judged on topics that it was not learned from. "Not worse" is said of the upper end of the interval of the
difference, with a small margin: two policies that do the same differ by noise, and noise alone must not keep either
out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from rl_policy.bootstrap import Interval, bootstrap_mean
from rl_policy.policies import RenewalPolicy
from rl_policy.replay import classes_of, outcome_of, rows_of_class

if TYPE_CHECKING:
    from rl_policy.learned import LearnedPolicy
    from rl_policy.records import Batch

OVERALL = "overall"


def is_held_out(topic: str, one_in: int = 4) -> bool:
    """Whether a topic is kept for the gate instead of being learned from.

    It depends on the name alone, so that a topic stays on its side over days, partitions and processes.
    """
    if one_in < 2:
        raise ValueError(f"one in {one_in} topics held out leaves none to learn from; give 2 or more")
    return int.from_bytes(blake2b(topic.encode(), digest_size=8).digest(), "big") % one_in == 0


@dataclass(slots=True, frozen=True)
class Verdict:
    """What the gate found.

    Args:
        passed: whether the policy may be used.
        differences: learned minus renewal, in messages a subscribe, overall and for each class; below 0 is better.
        reasons: why it did not pass, in words; empty if it did.
    """

    passed: bool
    differences: dict[str, Interval] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


@dataclass(slots=True, frozen=True)
class Gate:
    """How strict the gate is.

    Args:
        margin: by how many messages a subscribe the policy may be worse at the upper end of the interval.
        confidence: of the intervals.
        min_topics: below how many topics a class says too little to let anything pass.
    """

    margin: float = 0.01
    confidence: float = 0.95
    min_topics: int = 8

    def judge(self, policy: LearnedPolicy, unseen: Batch) -> Verdict:
        """Compare `policy` with the renewal rule on records of topics it was not learned from."""
        if not len(unseen):
            return Verdict(passed=False, reasons=("no records to judge by; replay topics kept apart from training",))
        learned, renewal = outcome_of(policy, unseen), outcome_of(RenewalPolicy(), unseen)
        worse = learned.costs - renewal.costs
        parts = {OVERALL: np.arange(len(unseen))}
        parts |= {name: rows_of_class(unseen, name) for name in classes_of(unseen)}
        differences: dict[str, Interval] = {}
        reasons: list[str] = []
        for name, rows in parts.items():
            topics = [unseen.topics[row] for row in rows]
            found = bootstrap_mean(worse[rows], unseen.weights[rows], topics, confidence=self.confidence)
            differences[name] = found
            if not np.any(worse[rows]):
                continue  # the very same waits: there is nothing to doubt
            if found.topics < self.min_topics:
                reasons.append(f"{name}: {found.topics} topics, at least {self.min_topics} are needed to tell")
            elif found.high > self.margin:
                reasons.append(f"{name}: may be worse than the renewal rule by more than {self.margin:g}: {found}")
        return Verdict(passed=not reasons, differences=differences, reasons=tuple(reasons))
