"""`python -m benchmarks.draw_retained DIRECTORY`: the cost of every wait as the renewal rule sees it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from rl_policy import CostModel, renewal_wait
from rl_policy.renewal import expected_cost

AGES_S = (0.5, 3.0, 7.0)


def topics() -> dict[str, list[float]]:
    """64 gaps each of a clock, a Poisson process and bursts."""
    rng = np.random.default_rng(4)
    bursts = np.where(rng.random(64) < 1 / 6, rng.exponential(60.0, 64), rng.exponential(1.0, 64))
    made = {
        "a clock of 8 s": rng.normal(8.0, 0.3, 64),
        "Poisson, 3 s on average": rng.exponential(3.0, 64),
        "bursts, a minute apart": bursts,
    }
    return {name: sorted(gaps.tolist()) for name, gaps in made.items()}


def draw(path: Path) -> None:
    """One panel a topic, one curve an age, a dot at the wait chosen."""
    from matplotlib.figure import Figure

    cost = CostModel(0.2, 10.0)
    waits = np.linspace(0.0, cost.d_max_s, 400)
    figure = Figure(figsize=(10.0, 3.4), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (name, gaps) in zip(panels, topics().items(), strict=True):
        total = sum(gaps)
        for age in AGES_S:
            curve = [expected_cost(wait, gaps, total, age, cost) for wait in waits.tolist()]
            (line,) = axes.plot(waits, curve, label=f"silent for {age:g} s")
            chosen = renewal_wait(gaps, total, age, cost)
            axes.plot([chosen], [expected_cost(chosen, gaps, total, age, cost)], "o", color=line.get_color())
        axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("longest wait, s")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("expected cost (send at once = 1)")
    panels[0].legend(fontsize=8)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/structures") / "retained-policy.png")
