"""Q-learning put to the real question, as a baseline: send now, or wait one tick more?

The state is a cell of the same features and the ticks waited so far. Unlike the learned table it hears only what its
own choice came to, and must explore to hear of others; it also cannot say "as the renewal rule does".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rl_policy.features import YOUNG, cells_of
from rl_policy.policies import NOTHING_KNOWN, Choice

if TYPE_CHECKING:
    from rl_policy.cost import CostModel
    from rl_policy.features import Features
    from rl_policy.q_learning import LearningRate
    from rl_policy.records import Batch

TICKS: Final = 10
_LEVEL: Final = 2  # presence, pace, burstiness and silence

_UNTRIED: Final = (1.0, 0.0)  # sending costs 1 for certain; waiting is hoped to cost nothing until it has been tried


def _cell(features: Features, kappa: float) -> int:
    return next(cell for cell in cells_of(features, kappa) if cell % 10 in {_LEVEL, YOUNG})


class QWaitingPolicy:
    """A Q-table over (cell, ticks waited).

    Args:
        cost: the cost model it learns for; a tick is a tenth of its longest wait.
    """

    name = version = "q-learning"

    def __init__(self, cost: CostModel) -> None:
        self.cost = cost
        self._q: dict[tuple[int, int], list[float]] = {}
        self._visits: dict[tuple[int, int], list[int]] = {}

    def learn(self, batch: Batch, rate: LearningRate, *, rounds: int = 1, explore: float = 0.1, seed: int = 0) -> None:
        """Play every record `rounds` times in random order, hearing the cost of what was done alone."""
        rng = np.random.default_rng(seed)
        kappa, tick = self.cost.kappa, self.cost.d_max_s / TICKS
        cells = [_cell(record.features, kappa) for record in batch.records]
        residuals = batch.residual_s.tolist()
        for _ in range(rounds):
            for row in rng.permutation(len(batch)).tolist():
                dice = rng.random((TICKS, 2)).tolist()
                cell, residual = cells[row], residuals[row]
                for ticks in range(TICKS):
                    state = (cell, ticks)
                    values = self._q.setdefault(state, list(_UNTRIED))
                    visits = self._visits.setdefault(state, [0, 0])
                    adventurous, coin = dice[ticks]
                    defer = int(coin < 0.5) if adventurous < explore else int(values[1] < values[0])
                    over = True
                    if not defer:
                        target = 1.0
                    elif residual <= (ticks + 1) * tick:
                        target = kappa * (residual - ticks * tick)
                    elif ticks + 1 == TICKS:
                        target = kappa * tick + 1.0
                    else:
                        target = kappa * tick + min(self._q.get((cell, ticks + 1), _UNTRIED))
                        over = False
                    visits[defer] += 1
                    values[defer] += rate.start / visits[defer] ** rate.power * (target - values[defer])
                    if over:
                        break

    def choose(self, features: Features | None, cost: CostModel) -> Choice:
        """Wait as many ticks as the table would go on deferring."""
        if features is None:
            return NOTHING_KNOWN
        cell = _cell(features, cost.kappa)
        ticks = 0
        while ticks < TICKS:
            values = self._q.get((cell, ticks))
            if values is None or values[1] >= values[0]:
                break
            ticks += 1
        return Choice(ticks * cost.d_max_s / TICKS, f"q-table: {ticks} ticks")
