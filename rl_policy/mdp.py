"""The paper's Markov decision process, as printed, with what it leaves open made explicit.

A state is (u, d, t, n): whether a message was published, the deferral so far, the delay of what the subscriber has,
the number of subscribers. Action 0 sends the retained message, action 1 defers. u and n move on their own; d and t
follow the action: deferring adds one to each (d up to `d_max`, t up to `t_max`), sending leaves d and brings t to 0.

Left open and filled in here: equation 2, r = ω·g − (1−ω)·f with g = 1 − t′/t_max; the ranges of d, t and n; that a
delivery takes no time; that deferring stays allowed at d_max, since d never falls again and the paper's gain would
else vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import exp
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEND: Final = 0
DEFER: Final = 1


@lru_cache(maxsize=64)
def _subscriber_moves(lambda_s: float, lambda_u: float, n_max: int) -> NDArray[np.float64]:
    arrive, leave = _poisson(lambda_s), _poisson(lambda_u)
    moves = np.zeros((n_max + 1, n_max + 1))
    for n in range(n_max + 1):
        for more, p_more in enumerate(arrive):
            for less, p_less in enumerate(leave):
                moves[n, min(max(n + more - less, 0), n_max)] += p_more * p_less
    moves.setflags(write=False)
    return moves


def _poisson(mean: float) -> list[float]:
    """The chances of 0, 1, 2, … events, until all but a millionth of a millionth is told."""
    chances = [exp(-mean)]
    while 1.0 - sum(chances) > 1e-12 and len(chances) < 1000:
        chances.append(chances[-1] * mean / len(chances))
    return [chance / sum(chances) for chance in chances]


@dataclass(slots=True, frozen=True)
class PaperModel:
    """The parameters, with the paper's values.

    Args:
        lambda_p: mean number of publishes in a slot.
        lambda_s: mean number of new subscribers in a slot.
        lambda_u: mean number of subscribers that leave in a slot.
        omega: the weight of freshness against traffic.
        c_p: what one message costs.
        theta: the discount factor.
        d_max: the largest deferral counted.
        t_max: the largest delay counted.
        n_max: the largest number of subscribers.
        only_arrivals: count a retained send only in slots in which a subscriber arrived. The text says so, but the
            arrival is not in the state, so what was computed cannot have known it.
    """

    lambda_p: float = 0.6
    lambda_s: float = 0.2
    lambda_u: float = 0.1
    omega: float = 0.7
    c_p: float = 5.0
    theta: float = 0.95
    d_max: int = 5
    t_max: int = 10
    n_max: int = 10
    only_arrivals: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.omega <= 1.0:
            raise ValueError(f"omega is {self.omega}; it weighs two things and lies between 0 and 1")
        if not 0.0 <= self.theta < 1.0:
            raise ValueError(f"theta is {self.theta}; a discount factor lies in [0, 1)")
        if min(self.lambda_p, self.lambda_s, self.lambda_u) < 0.0 or min(self.d_max, self.t_max, self.n_max) < 1:
            raise ValueError("rates must be 0 or more and ranges at least 1")

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """How many values u, d, t and n have."""
        return 2, self.d_max + 1, self.t_max + 1, self.n_max + 1

    @property
    def publish_chance(self) -> float:
        """The chance of at least one publish in a slot."""
        return 1.0 - exp(-self.lambda_p)

    def subscriber_moves(self) -> NDArray[np.float64]:
        """P[n′ | n]: Poisson arrivals and departures in one slot, kept within 0 and `n_max`."""
        return _subscriber_moves(self.lambda_s, self.lambda_u, self.n_max)

    def rewards(self) -> NDArray[np.float64]:
        """r(s, a) with the action as the last axis."""
        u, _, t, n = np.indices(self.shape)
        fresh = np.stack([np.ones(self.shape), 1.0 - np.minimum(t + 1, self.t_max) / self.t_max], axis=-1)
        share = 1.0 - exp(-self.lambda_s) if self.only_arrivals else 1.0
        published = (u == 1)[..., None]
        idle = np.stack([np.full(self.shape, share * self.c_p), np.zeros(self.shape)], axis=-1)
        traffic = np.where(published, (n * self.c_p)[..., None], idle)
        rewards: NDArray[np.float64] = self.omega * fresh - (1.0 - self.omega) * traffic
        return rewards

    def after(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The expectation of `values` (one for each state) in the next slot, for each state and action."""
        p = self.publish_chance
        over_u = (1.0 - p) * values[0] + p * values[1]
        expected = over_u @ self.subscriber_moves().T  # indexed by d′, t′, n
        deferred_d = np.minimum(np.arange(self.d_max + 1) + 1, self.d_max)
        deferred_t = np.minimum(np.arange(self.t_max + 1) + 1, self.t_max)
        sent = np.broadcast_to(expected[:, :1, :], expected.shape)
        deferred = expected[np.ix_(deferred_d, deferred_t)]
        both = np.stack([sent, deferred], axis=-1)
        return np.broadcast_to(both, (2, *both.shape)).copy()


def value_iteration(model: PaperModel, tolerance: float = 1e-9) -> NDArray[np.float64]:
    """The optimal Q(s, a), to within `tolerance`."""
    rewards = model.rewards()
    q = np.zeros_like(rewards)
    while True:
        better = rewards + model.theta * model.after(q.max(axis=-1))
        change = float(np.abs(better - q).max())
        q = better
        if change * model.theta <= tolerance * (1.0 - model.theta):
            return q


def greedy(q: NDArray[np.float64]) -> NDArray[np.intp]:
    """The action with the largest Q in every state; to send where both are equal."""
    actions: NDArray[np.intp] = np.argmax(q, axis=-1)
    return actions


def always_send(model: PaperModel) -> NDArray[np.intp]:
    """What MQTT does, as a policy of this model."""
    return np.zeros(model.shape, dtype=np.intp)


def average_reward(model: PaperModel, policy: NDArray[np.intp], slots: int = 2000) -> float:
    """The mean reward of a slot after `slots` of them, from one subscriber and nothing deferred."""
    rewards = np.take_along_axis(model.rewards(), policy[..., None], axis=-1)[..., 0]
    moves, p = model.subscriber_moves(), model.publish_chance
    chance = np.zeros(model.shape)
    chance[0, 0, 0, 1] = 1.0
    total = 0.0
    for _ in range(slots):
        total += float((chance * rewards).sum())
        sent = np.where(policy == SEND, chance, 0.0).sum(axis=0)
        kept = np.where(policy == DEFER, chance, 0.0).sum(axis=0)
        arrived = np.zeros(sent.shape)
        arrived[:, 0, :] += sent.sum(axis=1)
        later = np.zeros(sent.shape)
        later[1:, 1:] += kept[:-1, :-1]  # d and t one further, or at their ends
        later[-1, 1:] += kept[-1, :-1]
        later[1:, -1] += kept[:-1, -1]
        later[-1, -1] += kept[-1, -1]
        moved = (arrived + later) @ moves
        chance = np.stack([(1.0 - p) * moved, p * moved])
    return total / slots


def discounted_reward(model: PaperModel, policy: NDArray[np.intp], tolerance: float = 1e-9) -> NDArray[np.float64]:
    """The discounted value of following `policy` from each state."""
    rewards = np.take_along_axis(model.rewards(), policy[..., None], axis=-1)[..., 0]
    value = np.zeros(model.shape)
    while True:
        following = np.take_along_axis(model.after(value), policy[..., None], axis=-1)[..., 0]
        better = rewards + model.theta * following
        change = float(np.abs(better - value).max())
        value = better
        if change * model.theta <= tolerance * (1.0 - model.theta):
            return value
