"""Paper 004 again: expected reward against ω and λP, Q-learning against the optimum, and what does not hold.

`locus reproduce 004` writes `paper-004.md` and its plots. The model is `rl_policy.mdp`; what the paper leaves open is
said there and repeated on the page.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp
from typing import TYPE_CHECKING

import numpy as np

from rl_policy import (
    DECAYING_RATE,
    PAPER_RATE,
    LearningRate,
    PaperModel,
    always_send,
    average_reward,
    greedy,
    q_learning,
    value_iteration,
)
from rl_policy.mdp import DEFER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

OMEGAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
LAMBDAS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0)
STEPS = 1_000_000
CHECKPOINTS = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
SEEDS = (0, 1, 2)
EXPLORE = 0.3


@dataclass(slots=True, frozen=True)
class Point:
    """One point of a figure: the mean reward of a slot under each policy."""

    x: float
    send: float
    optimum: float
    paper_rate: float
    decaying_rate: float

    @property
    def gain(self) -> float:
        """What the optimum has over always sending."""
        return self.optimum - self.send


@dataclass(slots=True, frozen=True)
class Progress:
    """How far Q-learning is from the optimum after each checkpoint, over the seeds."""

    rate: str
    shortfall: NDArray[np.float64]  # of reward, seeds × checkpoints
    error: NDArray[np.float64]  # of the advantage of deferring, relative, seeds × checkpoints


def point(x: float, model: PaperModel) -> Point:
    """Solve, learn and evaluate one model."""
    learned = [
        average_reward(model, greedy(q_learning(model, rate, [STEPS], explore=EXPLORE)[-1]))
        for rate in (PAPER_RATE, DECAYING_RATE)
    ]
    return Point(
        x,
        average_reward(model, always_send(model)),
        average_reward(model, greedy(value_iteration(model))),
        *learned,
    )


def learning(name: str, rate: LearningRate, model: PaperModel) -> Progress:
    """Follow Q-learning to the last checkpoint, for each seed."""
    best = value_iteration(model)
    reward = average_reward(model, greedy(best))
    shortfall, error = [], []
    for seed in SEEDS:
        tables = q_learning(model, rate, CHECKPOINTS, explore=EXPLORE, seed=seed)
        shortfall.append([reward - average_reward(model, greedy(table)) for table in tables])
        advantage = np.diff(best, axis=-1)
        error.append(
            [float(np.abs(np.diff(table, axis=-1) - advantage).mean() / np.abs(advantage).mean()) for table in tables]
        )
    return Progress(name, np.array(shortfall), np.array(error))


def unserved(model: PaperModel, slots: int) -> float:
    """The chance that a subscriber who arrives in an idle slot has nothing after `slots` slots, under the optimum.

    It is served when a message is published or when the policy sends; it arrives where the policy has settled.
    """
    policy = greedy(value_iteration(model))
    # Once n has drifted to its usual values, the only way t falls is a send; follow one subscriber through idle slots.
    n = model.n_max // 2
    waiting, t = 1.0, 0
    for _ in range(slots):
        if policy[0, model.d_max, t, n] != DEFER:
            return 0.0
        t = min(t + 1, model.t_max)
        waiting *= exp(-model.lambda_p)
    return waiting


def reproduce(out: Path, progress: Callable[[str], None]) -> None:
    """Run the paper's evaluation and write the page and its plots into `out`."""
    base = PaperModel()
    by_omega, by_lambda = [], []
    for omega in OMEGAS:
        progress(f"paper 004: figure 2, ω = {omega}")
        by_omega.append(point(omega, replace(base, omega=omega)))
    for lambda_p in LAMBDAS:
        progress(f"paper 004: figure 3, λP = {lambda_p}")
        by_lambda.append(point(lambda_p, replace(base, lambda_p=lambda_p)))
    curves = []
    for name, rate in (("α = 0.2, as printed", PAPER_RATE), ("α falling with the visits", DECAYING_RATE)):
        progress(f"paper 004: Q-learning against the optimum, {name}")
        curves.append(learning(name, rate, base))
    _plot_points(out / "paper-004-figure-2.png", by_omega, "ω, the weight of freshness")
    _plot_points(out / "paper-004-figure-3.png", by_lambda, "λP, publishes a slot")
    _plot_learning(out / "paper-004-learning.png", curves)
    (out / "paper-004.md").write_text(_page(base, by_omega, by_lambda, curves), encoding="utf-8")


def _table(points: Sequence[Point], symbol: str) -> str:
    lines = [
        f"| {symbol} | always send | optimum | Q-learning, α = 0.2 | Q-learning, α falling | gain of the optimum |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {p.x:g} | {p.send:.2f} | {p.optimum:.2f} | {p.paper_rate:.2f} | {p.decaying_rate:.2f} | {p.gain:.2f} |"
        for p in points
    ]
    return "\n".join(lines)


def _holds(*, holds: bool) -> str:
    return "holds" if holds else "**does not hold**"


def _falls(values: Sequence[float]) -> bool:
    return all(later <= earlier + 1e-9 for earlier, later in pairwise(values))


def _page(base: PaperModel, by_omega: list[Point], by_lambda: list[Point], curves: list[Progress]) -> str:
    q = value_iteration(base)
    of_d = float(np.abs(q - q[:, :1]).max())
    arrivals = replace(base, only_arrivals=True)
    told = average_reward(base, greedy(q)) - average_reward(base, always_send(base))
    true = average_reward(arrivals, greedy(value_iteration(arrivals))) - average_reward(arrivals, always_send(arrivals))
    better = all(p.gain >= -1e-9 for p in (*by_omega, *by_lambda))
    learned = [p.paper_rate - p.send for p in (*by_omega, *by_lambda)]
    patient = [p.decaying_rate - p.send for p in (*by_omega, *by_lambda)]
    fixed, falling = curves
    starved = "\n".join(
        f"| {value:g} | {average_gain(base, value):.2f} | {unserved(replace(base, lambda_p=value), base.d_max):.0%} |"
        for value in (0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 1.0)
    )
    rows = "\n".join(
        f"| {steps:,} | {fixed.shortfall[:, i].mean():.2f} | {falling.shortfall[:, i].mean():.2f} "
        f"| {fixed.error[:, i].mean():.0%} | {falling.error[:, i].mean():.0%} |"
        for i, steps in enumerate(CHECKPOINTS)
    )
    return f"""# Paper 004: to send or to defer a retained message

Written by `locus reproduce 004`. The model is `rl_policy/mdp.py`, the learner `rl_policy/q_learning.py`.

**As printed:** λP {base.lambda_p:g}, λS {base.lambda_s:g}, λU {base.lambda_u:g}, ω {base.omega:g}, Cp {base.c_p:g},
α 0.2, θ {base.theta:g}. **Filled in, because the paper does not say:** equation 2 is lost; we take
r = ω·g − (1−ω)·f with g = 1 − t′/{base.t_max}. Dmax is {base.d_max}, the largest delay counted {base.t_max}, the
largest number of subscribers {base.n_max}; a delivery takes no time; deferring stays allowed at Dmax. Q-learning
explores with chance {EXPLORE:g} and is put into a random state every 50 steps, {STEPS:,} steps a point. Shown is the
mean reward of a slot over the first 2,000 slots, computed from the model rather than sampled.

## Figure 2: expected reward against ω

![expected reward against ω](paper-004-figure-2.png)

{_table(by_omega, "ω")}

The claim that the optimum is above always sending, the more so the smaller ω is:
{_holds(holds=better and _falls([p.gain for p in by_omega]))}.

## Figure 3: expected reward against λP

![expected reward against λP](paper-004-figure-3.png)

{_table(by_lambda, "λP")}

The claim that the gain is largest where little is published, and that both fall as more is:
{_holds(holds=_falls([p.gain for p in by_lambda]) and _falls([p.optimum for p in by_lambda]))}.

The claim that *Q-learning with α = 0.2* is better than always sending at every point of both figures:
{_holds(holds=min(learned) >= 0.0)} (smallest gain {min(learned):.3f}). With α falling, after the same number of steps:
{_holds(holds=min(patient) >= 0.0)} (smallest gain {min(patient):.3f}).

## Q-learning against the optimum

![shortfall and error of Q-learning](paper-004-learning.png)

| steps | reward short of the optimum, α = 0.2 | α falling | error of the advantage, α = 0.2 | α falling |
|---|---|---|---|---|
{rows}

Means over {len(SEEDS)} seeds; the error is that of A = Q(s, defer) − Q(s, send), which decides: mean |A − A*| over
mean |A*|. Always sending is {average_reward(base, greedy(q)) - average_reward(base, always_send(base)):.2f} short of
the optimum. Between the last two checkpoints the shortfall goes from {fixed.shortfall[:, -2].mean():.2f} to
{fixed.shortfall[:, -1].mean():.2f} with α fixed and from {falling.shortfall[:, -2].mean():.2f} to
{falling.shortfall[:, -1].mean():.2f} with α falling by the visits of each state and action. With α fixed a fifth of
the noise of the last transition stays in the table for ever, and that noise is larger than what one action has over
the other: which one looks better is decided by chance, however long one learns. Value iteration gives the optimum
itself from the probabilities that the simulation was made of, so there was nothing here that had to be learned by
trial.

## What does not hold

**The gain is largest where deferring does the most harm.** Nothing in the model obliges the broker to deliver in the
end. The optimum defers in idle slots, and a subscriber who arrives in one waits for the next publish, however long
that is. The less is published, the larger the gain of figure 3, and the more subscribers have nothing after Dmax:

| λP | gain over always sending | new subscribers with nothing after {base.d_max} slots |
|---|---|---|
{starved}

**The deferral d does nothing.** It grows, never falls, and enters neither the reward nor any other transition. Over
all states the optimal Q differs by {of_d:.1g} between one d and another. Dmax bounds nothing.

**The subscriber who arrives is not in the state.** The text counts a retained send when a subscriber arrives, but the
state holds only how many there are, so every idle slot is charged as if one had come. Charged only when one comes (a
chance of {1 - exp(-base.lambda_s):.0%} a slot), the gain at the printed parameters is {true:.2f} instead of
{told:.2f}.

**Neither is the age of the last publish.** Publishes come by a memoryless process, so the model cannot even express
that one is due. Real topics have clocks, bursts and outages, and there the age is the best thing one knows.

## What Locus does instead

One decision at each SUBSCRIBE: the longest wait w, at most Dmax, at the end of which the message *is* sent. Its cost is
[R > w] + κ·min(R, w), with R the time to the next retained publish. Publishes do not depend on what was chosen, so
afterwards the cost of every w is known and no exploration is needed. [The page on the retained
policy](../structures/retained-policy.md) has the rules and the figures.
"""


def average_gain(base: PaperModel, lambda_p: float) -> float:
    """What the optimum has over always sending at another rate of publishing."""
    model = replace(base, lambda_p=lambda_p)
    return average_reward(model, greedy(value_iteration(model))) - average_reward(model, always_send(model))


def _plot_points(path: Path, points: Sequence[Point], label: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    x = [p.x for p in points]
    axes.plot(x, [p.optimum for p in points], "-", label="optimum (value iteration)")
    axes.plot(x, [p.decaying_rate for p in points], "^", label="Q-learning, α falling")
    axes.plot(x, [p.paper_rate for p in points], "x", label="Q-learning, α = 0.2")
    axes.plot(x, [p.send for p in points], "--", label="always send")
    axes.set_xlabel(label)
    axes.set_ylabel("expected reward of a slot")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def _plot_learning(path: Path, curves: Sequence[Progress]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for curve, mark in zip(curves, ("x-", "^-"), strict=True):
        for axes, values in ((left, curve.shortfall), (right, curve.error)):
            axes.plot(CHECKPOINTS, values.mean(axis=0), mark, label=curve.rate)
            axes.fill_between(CHECKPOINTS, values.min(axis=0), values.max(axis=0), alpha=0.15)
    for axes, label in ((left, "reward short of the optimum"), (right, "mean |A − A*| / mean |A*|")):
        axes.set_xscale("log")
        axes.set_xlabel("steps")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0.0)
        axes.grid(alpha=0.3)
    left.legend()
    figure.savefig(path, dpi=110)
