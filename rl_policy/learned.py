"""The learned policy: a table from cells to actions, one of which is the renewal rule itself.

What the table does not know, it leaves to the renewal rule; so does every cell where nothing else was better by more
than the noise. See `rl_policy.training` for how the table comes about and `rl_policy.gate` for who may use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rl_policy.features import cells_of
from rl_policy.policies import NOTHING_KNOWN, Choice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rl_policy.cost import CostModel
    from rl_policy.features import Features

RENEWAL: Final = 0  # the action every table has, and falls back to
_RULES: Final = (
    ("the renewal rule", "renewal", 1.0),
    ("the renewal rule and a tenth", "renewal", 1.1),
    ("the renewal rule and a half", "renewal", 1.5),
    ("half the renewal rule", "renewal", 0.5),
    ("the renewal rule over 8 gaps", "recent", 1.0),
    ("the renewal rule over 8 gaps and a tenth", "recent", 1.1),
    ("a typical gap and a tenth", "gap", 1.1),
    ("the rest of a typical gap and a tenth", "rest", 1.1),
)
_SHARES: Final = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
ACTIONS: Final = tuple(name for name, _, _ in _RULES) + tuple(
    f"{share:.0%} of the longest wait" if share else "send" for share in _SHARES
)


class WrongCostModelError(ValueError):
    """A table learned for one cost model was asked about another."""


def action_wait(action: int, features: Features, d_max_s: float) -> float:
    """The wait that `action` stands for in this situation."""
    if action < len(_RULES):
        _, rule, stretch = _RULES[action]
        return min(rule_wait(rule, features) * stretch, d_max_s)
    return _SHARES[action - len(_RULES)] * d_max_s


def rule_wait(rule: str, features: Features) -> float:
    """What one of the rules says, before it is stretched."""
    if rule == "renewal":
        return features.renewal_wait_s
    if rule == "recent":
        return features.recent_wait_s
    if rule == "gap":
        return features.typical_gap_s
    return max(features.typical_gap_s - features.age_s, 0.0)


def action_waits(situations: Sequence[Features], d_max_s: float) -> NDArray[np.float64]:
    """The waits of every action (columns) in many situations (rows)."""
    said = {rule: np.array([rule_wait(rule, f) for f in situations], dtype=np.float64) for _, rule, _ in _RULES}
    rules = [np.minimum(said[rule] * stretch, d_max_s) for _, rule, stretch in _RULES]
    shares = [np.full(len(situations), share * d_max_s) for share in _SHARES]
    return np.stack([*rules, *shares], axis=1)


class LearnedPolicy:
    """A table of actions for one cost model.

    Args:
        cells: cell to action. Cells that are not in it are answered by the next coarser one, at last by the renewal
            rule.
        cost: the cost model it was learned for.
        version: which table this is; the policy file gives its digest.
        actions: the names of the actions the table was learned with; they must be today's.
    """

    __slots__ = ("_cells", "cost", "version")
    name = "learned"

    def __init__(
        self, cells: Mapping[int, int], cost: CostModel, version: str = "unsaved", actions: Sequence[str] = ACTIONS
    ) -> None:
        if tuple(actions) != ACTIONS:
            raise ValueError(f"the table knows other actions than this version of Locus: {', '.join(actions)}; retrain")
        for cell, action in cells.items():
            if not 0 <= action < len(ACTIONS):
                raise ValueError(f"cell {cell} names action {action}; there are {len(ACTIONS)}")
        self._cells = dict(cells)
        self.cost = cost
        self.version = version

    @property
    def cells(self) -> Mapping[int, int]:
        """The table."""
        return self._cells

    def action(self, features: Features) -> int:
        """The action of the finest cell that the table knows."""
        cells = self._cells
        for cell in cells_of(features, self.cost.kappa):
            action = cells.get(cell)
            if action is not None:
                return action
        return RENEWAL

    def choose(self, features: Features | None, cost: CostModel) -> Choice:
        """The wait the table gives."""
        if cost != self.cost:
            raise WrongCostModelError(f"policy {self.version} was learned for {self.cost}, asked for {cost}; retrain")
        if features is None:
            return NOTHING_KNOWN
        action = self.action(features)
        return Choice(action_wait(action, features, cost.d_max_s), f"table: {ACTIONS[action]}")
