"""Retained policies by replay: what each would have cost on topics it was not learned from.

Three sets of topics are made from three seeds: one to learn from, one for the gate to judge by, one to measure on. All
policies decide on the same subscribers of the last set; the cost of always sending is 1.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.report import Row, median, spread
from rl_policy import (
    DECAYING_RATE,
    CostModel,
    DuePolicy,
    GapStatistics,
    Gate,
    LearnedPolicy,
    QWaitingPolicy,
    RateThresholdPolicy,
    RenewalPolicy,
    SendPolicy,
    TrainingStatistics,
    batch_of,
    bootstrap_mean,
    clairvoyant,
    features_of,
    make_traces,
    outcome_of,
)
from rl_policy.replay import classes_of, presence_at, rows_of_class, weighted_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rl_policy import Batch, Outcome, Trace, Verdict

D_MAX_S = 10.0
KAPPAS = (0.2, 1.0)
COVARIATE_WORLDS = ("day-night", "day-night-events")
EVERYWHERE = "all worlds"
TRAIN_SEED, GATE_SEED, TEST_SEED = 401, 402, 403  # looked at only after worlds, features and cautions were settled
CLOSED_TO_REACH = 0.25
FEWER_TO_REACH = 0.35


@dataclass(slots=True)
class Replay:
    """All policies on the same unseen subscribers, for one kappa."""

    cost: CostModel
    batch: Batch
    verdict: Verdict
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def rows(self, world: str) -> NDArray[np.intp]:
        """Which records belong to a world."""
        return np.arange(len(self.batch)) if world == EVERYWHERE else rows_of_class(self.batch, world)

    def mean_cost(self, policy: str, world: str) -> float:
        """The cost of a subscribe."""
        rows = self.rows(world)
        return weighted_mean(self.outcomes[policy].costs[rows], self.batch.weights[rows])

    def sent_share(self, policy: str, world: str) -> float:
        """How many of the retained messages were sent after all."""
        rows = self.rows(world)
        return weighted_mean(self.outcomes[policy].sent[rows], self.batch.weights[rows])

    def closed(self, world: str) -> tuple[float, float, float]:
        """How much of the distance from renewal to clairvoyant the learned policy closes: share, and its 95 % interval.

        The interval holds the distance fixed and resamples the topics of what is gained.
        """
        rows = self.rows(world)
        distance = self.mean_cost("renewal", world) - self.mean_cost("clairvoyant", world)
        gain = self.outcomes["renewal"].costs[rows] - self.outcomes["learned"].costs[rows]
        topics = [self.batch.topics[row] for row in rows]
        found = bootstrap_mean(gain, self.batch.weights[rows], topics)
        return found.mean / distance, found.low / distance, found.high / distance


def replay(kappa: float, topics: tuple[int, int, int], subscribers: int, progress: Callable[[str], None]) -> Replay:
    """Learn, judge and measure; `topics` are how many topics of each world are learned from, judged by and measured."""
    cost = CostModel(kappa, D_MAX_S)
    learn_from, judge_by, measure_on = topics
    progress(f"kappa {kappa:g}: learning from {learn_from} topics of each world")
    seen = batch_of(make_traces(TRAIN_SEED, learn_from, subscribers), cost)
    statistics = TrainingStatistics(cost)
    statistics.learn_batch(seen)
    learned = statistics.fit()
    by_trial = QWaitingPolicy(cost)
    by_trial.learn(seen, DECAYING_RATE)
    progress(f"kappa {kappa:g}: judging by {judge_by} topics of each world, measuring on {measure_on}")
    verdict = Gate().judge(learned, batch_of(make_traces(GATE_SEED, judge_by, subscribers), cost))
    if not verdict.passed:  # as a broker does: it stays with the renewal rule
        learned = LearnedPolicy({}, cost)
    batch = batch_of(make_traces(TEST_SEED, measure_on, subscribers), cost)
    found = Replay(cost, batch, verdict)
    for policy in (SendPolicy(), RateThresholdPolicy(), DuePolicy(), by_trial, RenewalPolicy(), learned):
        found.outcomes[policy.name] = outcome_of(policy, batch)
    found.outcomes["clairvoyant"] = clairvoyant(batch)
    return found


def informed_share(found: Replay, world: str, samples: int, neighbours: int = 200) -> float:
    """How much of the distance one would close who knew each topic's law in hindsight, though not its future.

    For every decision it takes the moments of the topic's whole life that looked alike (the publisher's presence, day
    or night, about the same age) and waits what would have been best over them. No policy that sees no more can do
    much better.
    """
    cost, batch = found.cost, found.batch
    rows = found.rows(world)
    waits = np.zeros(len(rows))
    measured = len(set(batch.topics)) // len(classes_of(batch))
    subscribers = 1  # the lives alone are wanted here
    lives = {trace.topic: trace for trace in make_traces(TEST_SEED, measured, subscribers, (world,))}
    known: dict[str, dict[tuple[int, bool], tuple[NDArray[np.float64], NDArray[np.float64]]]] = {}
    for place, row in enumerate(rows.tolist()):
        record = batch.records[row]
        if record.topic not in known:
            known = {record.topic: _moments(lives[record.topic], samples)}
        features = record.features
        alike = known[record.topic].get((int(features.presence), _by_day(features.hour or 0)))
        if alike is None:
            continue
        ages, residuals = alike
        middle = int(np.searchsorted(ages, features.age_s))
        near = np.sort(residuals[max(middle - neighbours // 2, 0) : middle + neighbours // 2])
        waits[place] = _best_wait(near, cost)
    paid = weighted_mean(
        (batch.residual_s[rows] > waits) + cost.kappa * np.minimum(batch.residual_s[rows], waits), batch.weights[rows]
    )
    renewal = found.mean_cost("renewal", world)
    return (renewal - paid) / (renewal - found.mean_cost("clairvoyant", world))


def _by_day(hour: int) -> bool:
    return 7 <= hour < 19


def _moments(trace: Trace, samples: int) -> dict[tuple[int, bool], tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Ages and residuals at random moments of a topic's life, by presence and day, sorted by age."""
    publishes = trace.publishes_s
    times = np.random.default_rng(1).uniform(publishes[0], publishes[-1], samples)
    after = np.searchsorted(publishes, times, side="right")
    ages, residuals = times - publishes[after - 1], publishes[after] - times
    groups: dict[tuple[int, bool], list[int]] = {}
    for place, (now, age) in enumerate(zip(times.tolist(), ages.tolist(), strict=True)):
        hour = int((now + trace.starts_at_s) / 3600.0) % 24
        key = (int(presence_at(trace.away_s, now - age, now)), _by_day(hour))
        groups.setdefault(key, []).append(place)
    found = {}
    for key, places in groups.items():
        order = np.array(places)[np.argsort(ages[places])]
        found[key] = (ages[order], residuals[order])
    return found


def _best_wait(residuals: NDArray[np.float64], cost: CostModel) -> float:
    """The wait that costs least over these residuals, which are sorted."""
    ended = residuals[residuals <= cost.d_max_s]
    left = len(residuals) - np.arange(1, len(ended) + 1)
    costs = left + cost.kappa * (np.cumsum(ended) + left * ended)
    if not len(ended) or costs.min() >= len(residuals):
        return 0.0
    return float(ended[np.argmin(costs)])


def rows_of(found: Replay, samples: int) -> list[Row]:
    """The learned policy against the renewal rule and always sending, and what was to be reached.

    `samples` is how many moments of each topic's life the one who knows its law is shown.
    """
    kappa = found.cost.kappa
    rows = []
    fine = 0
    worlds = [*classes_of(found.batch), EVERYWHERE]
    learned, renewal = found.outcomes["learned"], found.outcomes["renewal"]
    for world in worlds:
        members = found.rows(world)
        topics = [found.batch.topics[row] for row in members]
        worse = bootstrap_mean(learned.costs[members] - renewal.costs[members], found.batch.weights[members], topics)
        fine += worse.low <= 0.0
        rows += [
            Row(
                f"replay, κ={kappa:g}, {world}",
                "cost/subscribe",
                found.mean_cost("learned", world),
                peer,
                found.mean_cost(peer, world),
                less_is_better=True,
                note=f"difference {worse}" if peer == "renewal" else "",
            )
            for peer in ("renewal", "send")
        ]
    rows.append(
        Row(
            f"replay, κ={kappa:g}: worlds in which learned is not worse than renewal beyond noise",
            "worlds",
            fine,
            "all of them",
            len(worlds),
            target=1.0,
            note="95 % interval over topics",
        )
    )
    if kappa == KAPPAS[0]:
        for world in COVARIATE_WORLDS:
            share, low, high = found.closed(world)
            rows.append(
                Row(
                    f"replay, κ={kappa:g}, {world}: distance from renewal to clairvoyant closed",
                    "share",
                    share,
                    "to reach",
                    CLOSED_TO_REACH,
                    target=1.0,
                    note=f"95 % interval {low:.2f} to {high:.2f}; who knows each topic's law in hindsight closes "
                    f"{informed_share(found, world, samples):.2f}",
                )
            )
        rows.append(
            Row(
                f"replay, κ={kappa:g}, {EVERYWHERE}: retained messages sent",
                "per subscribe",
                found.sent_share("learned", EVERYWHERE),
                "always send",
                1.0,
                target=1.0 / (1.0 - FEWER_TO_REACH),
                less_is_better=True,
                note=f"{1.0 - found.sent_share('learned', EVERYWHERE):.0%} fewer; {FEWER_TO_REACH:.0%} to reach",
            )
        )
    return rows


def table_of(found: Replay) -> str:
    """Every policy in every world: cost of a subscribe, and in brackets the share of retained messages sent."""
    names = list(found.outcomes)
    lines = [
        f"Cost of a subscribe by replay, always to send being 1 (in brackets: retained messages sent); "
        f"κ={found.cost.kappa:g}, Dmax {found.cost.d_max_s:g} s, {len(found.batch):,} decisions on "
        f"{len(set(found.batch.topics))} unseen topics. Gate: "
        + ("passed." if found.verdict.passed else f"not passed ({'; '.join(found.verdict.reasons)})."),
        "",
        f"| world | {' | '.join(names)} | closed |",
        "|---|" + "---|" * (len(names) + 1),
    ]
    for world in [*classes_of(found.batch), EVERYWHERE]:
        cells = [f"{found.mean_cost(name, world):.3f} ({found.sent_share(name, world):.2f})" for name in names]
        lines.append(f"| {world} | {' | '.join(cells)} | {found.closed(world)[0]:.0%} |")
    return "\n".join(lines)


def decision_row(repeats: int) -> Row:
    """How long a decision takes: features of a topic with 64 gaps, and the learned table."""
    cost = CostModel(KAPPAS[0], D_MAX_S)
    policy = LearnedPolicy({}, cost)
    rng = np.random.default_rng(0)
    topics = []
    for _ in range(200):
        gaps, now = GapStatistics(), 0.0
        for gap in rng.exponential(rng.uniform(0.5, 30.0), 65).tolist():
            now += gap
            gaps.published(now)
        topics.append((gaps, now + float(rng.uniform(0.0, 5.0))))
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        for gaps, now in topics:
            policy.choose(features_of(gaps, now, cost, hour=12), cost)
        times.append((time.perf_counter() - began) / len(topics) * 1e6)
    return Row("deciding at a SUBSCRIBE, 64 gaps known", "us", median(times), less_is_better=True, spread=spread(times))


def measure_replay(quick: bool, progress: Callable[[str], None]) -> tuple[list[Row], list[str]]:
    """The rows and remarks of the replay."""
    topics, subscribers = ((100, 40, 40), 200) if quick else ((240, 100, 100), 300)
    rows, remarks = [], []
    for kappa in KAPPAS[:1] if quick else KAPPAS:
        found = replay(kappa, topics, subscribers, progress)
        rows += rows_of(found, 5_000 if quick else 20_000)
        remarks.append(table_of(found))
    rows.append(decision_row(5 if quick else 25))
    return rows, remarks
