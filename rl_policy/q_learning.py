"""Q-learning on the paper's model, with its fixed learning rate and with one that decays.

Q(s,a) ← Q(s,a) + α·(r + θ·max Q(s′,·) − Q(s,a)). With α fixed the table never settles: it keeps one fifth of the
noise of the last transition for ever. With α falling by the visits of each (s,a), slower than 1/visits, it converges
(Robbins and Monro).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rl_policy.mdp import PaperModel


@dataclass(slots=True, frozen=True)
class LearningRate:
    """α after `visits` visits: `start` / visits ** `power`; a power of 0 keeps it fixed, as in the paper."""

    start: float = 0.2
    power: float = 0.0

    def __post_init__(self) -> None:
        if not (0.0 < self.start <= 1.0 and 0.0 <= self.power <= 1.0):
            raise ValueError(f"a rate of {self.start} / visits^{self.power}; start in (0, 1], power in [0, 1]")


PAPER_RATE = LearningRate(0.2, 0.0)
DECAYING_RATE = LearningRate(1.0, 0.7)


def q_learning(
    model: PaperModel,
    rate: LearningRate,
    checkpoints: Sequence[int],
    *,
    explore: float = 0.1,
    restart_every: int = 50,
    seed: int = 0,
) -> list[NDArray[np.float64]]:
    """Learn by doing, and show the table after each number of steps in `checkpoints`.

    Args:
        model: the model that is acted in. The learner sees its transitions, not its probabilities.
        rate: the learning rate.
        checkpoints: numbers of steps, in order.
        explore: how often an action is taken at random.
        restart_every: after how many steps the learner is put into a random state, since d never falls on its own.
        seed: the same seed makes the same walk.
    """
    rng = np.random.default_rng(seed)
    shape = model.shape
    size_d, size_t, size_n = shape[1:]
    rewards = model.rewards().reshape(-1, 2).tolist()
    moves = np.cumsum(model.subscriber_moves(), axis=1).tolist()
    q = [[0.0, 0.0] for _ in rewards]
    visits = [[0, 0] for _ in rewards]
    theta, publish = model.theta, model.publish_chance
    shown = []
    u = d = t = 0
    n = 1
    done = 0
    for checkpoint in checkpoints:
        if checkpoint < done:
            raise ValueError(f"checkpoint {checkpoint} after {done}; give them in order")
        while done < checkpoint:
            block = min(checkpoint - done, 4096)
            dice = rng.random((block, 4)).tolist()
            starts = rng.integers(0, (2, size_d, size_t, size_n), size=(block // restart_every + 1, 4)).tolist()
            for step in range(block):
                if (done + step) % restart_every == 0:
                    u, d, t, n = starts[step // restart_every]
                adventurous, coin, published, moved = dice[step]
                state = ((u * size_d + d) * size_t + t) * size_n + n
                values = q[state]
                action = int(coin < 0.5) if adventurous < explore else int(values[1] > values[0])
                if action:
                    d, t = min(d + 1, size_d - 1), min(t + 1, size_t - 1)
                else:
                    t = 0
                u = int(published < publish)
                n = min(bisect_right(moves[n], moved), size_n - 1)
                reward = rewards[state][action]
                following = max(q[((u * size_d + d) * size_t + t) * size_n + n])
                visits[state][action] += 1
                alpha = rate.start / visits[state][action] ** rate.power if rate.power else rate.start
                values[action] += alpha * (reward + theta * following - values[action])
            done += block
        shown.append(np.array(q).reshape(*shape, 2))
    return shown
