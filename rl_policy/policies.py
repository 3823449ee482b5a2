"""The policies: from what is known at a SUBSCRIBE to the longest wait.

`LearnedPolicy` has its own module. Every policy answers with a wait in [0, d_max_s] and a word that says why, which is
what `explain` shows and telemetry records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from rl_policy.cost import CostModel
    from rl_policy.features import Features


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A policy's answer: wait at most `wait_s`, because of `reason`."""

    wait_s: float
    reason: str


class Policy(Protocol):
    """What the broker asks at every SUBSCRIBE to a topic that opted in."""

    @property
    def name(self) -> str:
        """The policy's name in configuration and telemetry."""

    @property
    def version(self) -> str:
        """Which one of its kind it is: a learned policy's digest, else the name again."""

    def choose(self, features: Features | None, cost: CostModel) -> Choice:
        """The longest wait; `features` is None where nothing is known of the topic."""


NOTHING_KNOWN = Choice(0.0, "nothing is known of the topic")


class SendPolicy:
    """What MQTT does: the retained message goes out at once."""

    name = version = "send"
    _choice = Choice(0.0, "always send")

    def choose(self, features: Features | None, cost: CostModel) -> Choice:  # noqa: ARG002  Policy's signature
        """Never wait."""
        return self._choice


class RenewalPolicy:
    """The renewal rule."""

    name = version = "renewal"

    def choose(self, features: Features | None, cost: CostModel) -> Choice:  # noqa: ARG002  Policy's signature
        """The wait that would have cost least over the last 64 gaps."""
        if features is None:
            return NOTHING_KNOWN
        return Choice(features.renewal_wait_s, f"renewal rule over {features.gaps} gaps")


class RateThresholdPolicy:
    """What one would write first: wait as long as allowed if the topic's rate is above kappa. Worse than it looks."""

    name = version = "rate"

    def choose(self, features: Features | None, cost: CostModel) -> Choice:
        """All or nothing, by the mean gap alone."""
        if features is None:
            return NOTHING_KNOWN
        if features.mean_gap_s * cost.kappa < 1.0:
            return Choice(cost.d_max_s, "published faster than kappa")
        return Choice(0.0, "published slower than kappa")


class DuePolicy:
    """Wait until the mean gap is over, if that is cheaper than sending."""

    name = version = "due"

    def choose(self, features: Features | None, cost: CostModel) -> Choice:
        """The mean residual, taken for the truth."""
        if features is None:
            return NOTHING_KNOWN
        left = features.mean_gap_s - features.age_s
        if 0.0 < left <= cost.d_max_s and left * cost.kappa < 1.0:
            return Choice(min(left * 1.25, cost.d_max_s), "the mean gap is nearly over")
        return Choice(0.0, "the mean gap is over, or too far off")
