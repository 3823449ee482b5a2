"""Learning from full information: sums per cell that add up, and the table they give.

A record tells what every action would have cost. Kept are, for each cell, the sums of those costs and of their
products: such sums of two days, or of two partitions, are added, and old days fade by a factor.

The table is then grown from the coarsest cell to the finest. A cell does what the cell around it does, and at the
very top what the renewal rule says, unless some action was better than that by more than the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from rl_policy.cost import CostModel
from rl_policy.features import YOUNG, parent_of
from rl_policy.learned import ACTIONS, RENEWAL, LearnedPolicy
from rl_policy.records import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rl_policy.records import DecisionRecord

_COUNT = len(ACTIONS)
_WIDTH = 2 + _COUNT + _COUNT * _COUNT  # weight, squared weight, costs, products of costs


class StatisticsError(ValueError):
    """Training statistics do not go together, or cannot be read."""


class _Stored(msgspec.Struct, frozen=True):
    kappa: float
    d_max_s: float
    actions: tuple[str, ...]
    cells: list[int]
    sums: bytes


@dataclass(slots=True, frozen=True)
class Caution:
    """How much must be seen before the table departs from the renewal rule.

    Records of one topic are alike, so there is less in them than their number says; the gate, which resamples whole
    topics, is where that is made good.

    Args:
        shrinkage: how many records of the coarser cell stand beside those of a cell.
        deviations: by how many standard errors an action must be better than what the cell around does.
        min_weight: below how many records a cell says nothing of its own.
    """

    shrinkage: float = 30.0
    deviations: float = 1.5
    min_weight: float = 20.0


class TrainingStatistics:
    """Sums over records, for one cost model. Merging is adding, so order and partition do not matter.

    Args:
        cost: the cost model to learn for.
    """

    __slots__ = ("_sums", "cost")

    def __init__(self, cost: CostModel) -> None:
        self.cost = cost
        self._sums: dict[int, NDArray[np.float64]] = {}

    def __len__(self) -> int:
        """How many cells have been seen."""
        return len(self._sums)

    def learn(self, records: Sequence[DecisionRecord]) -> None:
        """Add records: a day's, or a partition's."""
        self.learn_batch(Batch(records, self.cost))

    def learn_batch(self, batch: Batch) -> None:
        """Add the records of a batch that was made already."""
        if batch.cost != self.cost:
            raise StatisticsError(f"a batch for {batch.cost} in statistics for {self.cost}")
        if not len(batch):
            return
        costs = batch.action_costs()
        weights = batch.weights
        owners: dict[int, list[int]] = {}
        for row, cells in enumerate(batch.cells()):
            for cell in cells:
                owners.setdefault(cell, []).append(row)
        for cell, members in owners.items():
            cost, weight = costs[members], weights[members]
            weighed = cost * weight[:, None]
            total = np.concatenate([[weight.sum(), (weight**2).sum()], weighed.sum(axis=0), (weighed.T @ cost).ravel()])
            present = self._sums.get(cell)
            self._sums[cell] = total if present is None else present + total

    def merge(self, other: TrainingStatistics) -> None:
        """Add another's sums to these."""
        if other.cost != self.cost:
            raise StatisticsError(f"statistics for {other.cost} cannot be merged into those for {self.cost}")
        for cell, total in other._sums.items():
            present = self._sums.get(cell)
            self._sums[cell] = total.copy() if present is None else present + total

    def fade(self, factor: float, forget_below: float = 0.5) -> None:
        """Let what was learned count `factor` times as much as before, and drop cells that hardly count any more."""
        if not 0.0 < factor <= 1.0:
            raise StatisticsError(f"a factor of {factor}; give one above 0 and at most 1")
        self._sums = {cell: faded for cell, total in self._sums.items() if (faded := total * factor)[0] >= forget_below}

    def weight(self, cell: int) -> float:
        """How many records a cell has seen."""
        total = self._sums.get(cell)
        return 0.0 if total is None else float(total[0])

    def to_bytes(self) -> bytes:
        """The sums, to be stored or sent to whoever merges them."""
        cells = sorted(self._sums)
        stacked = np.stack([self._sums[cell] for cell in cells]) if cells else np.zeros((0, _WIDTH))
        stored = _Stored(self.cost.kappa, self.cost.d_max_s, ACTIONS, cells, stacked.astype("<f8").tobytes())
        return msgspec.msgpack.encode(stored)

    @classmethod
    def from_bytes(cls, data: bytes) -> TrainingStatistics:
        """Read what `to_bytes` wrote."""
        try:
            stored = msgspec.msgpack.decode(data, type=_Stored)
        except msgspec.DecodeError as error:
            raise StatisticsError(f"not training statistics: {error}; train afresh") from error
        if stored.actions != ACTIONS:
            raise StatisticsError(f"statistics over other actions: {', '.join(stored.actions)}; train afresh")
        if len(stored.sums) != 8 * _WIDTH * len(stored.cells):
            raise StatisticsError(f"{len(stored.sums)} bytes of sums for {len(stored.cells)} cells; train afresh")
        statistics = cls(CostModel(stored.kappa, stored.d_max_s))
        sums = np.frombuffer(stored.sums, dtype="<f8").reshape(len(stored.cells), _WIDTH)
        statistics._sums = {cell: sums[i].astype(np.float64) for i, cell in enumerate(stored.cells)}
        return statistics

    def fit(self, caution: Caution | None = None) -> LearnedPolicy:
        """Grow the table; `caution` says how sure it must be."""
        caution = caution or Caution()
        expected: dict[int, NDArray[np.float64]] = {}
        chosen: dict[int, int] = {}
        table: dict[int, int] = {}
        for cell in sorted(self._sums, key=lambda cell: (depth_of(cell), cell)):
            total = self._sums[cell]
            weight, squared = float(total[0]), float(total[1])
            own = total[2 : 2 + _COUNT] / weight
            parent = parent_of(cell)
            around = own if parent is None else expected[parent]
            action = RENEWAL if parent is None else chosen[parent]
            mean = (weight * own + caution.shrinkage * around) / (weight + caution.shrinkage)
            expected[cell], chosen[cell] = mean, action
            if weight < caution.min_weight:
                continue
            moments = total[2 + _COUNT :].reshape(_COUNT, _COUNT) / weight
            square = moments.diagonal()
            variance = square + square[action] - 2.0 * moments[action] - (own - own[action]) ** 2
            independent = weight**2 / squared
            doubt = caution.deviations * np.sqrt(np.maximum(variance, 0.0) / independent)
            gain = mean - mean[action] + doubt
            best = int(np.argmin(gain))
            if gain[best] < 0.0:
                chosen[cell] = table[cell] = best
        return LearnedPolicy(table, self.cost)


def depth_of(cell: int) -> int:
    """How many cells lie around this one."""
    return 1 if cell % 10 == YOUNG else cell % 10
