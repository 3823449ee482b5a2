"""Policy files for tests: one that always waits as long as allowed, one that always sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_policy import ACTIONS, CostModel, LearnedPolicy, Presence, Verdict, write_policy

if TYPE_CHECKING:
    from pathlib import Path

WAIT = len(ACTIONS) - 1
SEND = ACTIONS.index("send")


def write(path: Path, action: int, d_max_s: float, kappa: float = 0.2) -> Path:
    """A table whose coarsest cells, which hold every situation, all say the same."""
    cells = {int(presence) * 10: action for presence in Presence}
    write_policy(path, LearnedPolicy(cells, CostModel(kappa, d_max_s)), Verdict(passed=True), "in a test")
    return path
