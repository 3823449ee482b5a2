"""Retained policies through a real broker: real sockets, real clocks, bytes and waits as subscribers see them.

The lives of made-up topics are played ten times as fast to three brokers at once, which differ in their policy alone:
every topic has a publisher with a connection of its own (which it loses now and then, in the worlds where publishers
do), and subscribers come at random times, each with a new connection. A subscriber notes how long it had nothing and
whether what came first was the retained message. With time, the longest wait and the price of a second are scaled, so
that a cost means what it means by replay; a replay of the very same lives stands beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import peers
from benchmarks.load import LoadError, connect_packet, packet, subscribe_packet, text
from benchmarks.report import Row
from benchmarks.retained_replay import D_MAX_S, FEWER_TO_REACH, GATE_SEED, KAPPAS, TRAIN_SEED
from rl_policy import (
    CostModel,
    ExponentialPrior,
    GapStatistics,
    Gate,
    Interval,
    LearnedPolicy,
    RenewalPolicy,
    SendPolicy,
    TrainingStatistics,
    Verdict,
    batch_of,
    bootstrap_mean,
    features_of,
    make_traces,
    write_policy,
)
from rl_policy.replay import presence_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rl_policy import Policy, Trace

PLUGIN = "broker_plugins.retained.plugin.RetainedPlugin"
SEED = 404
SPEED = 10.0
KAPPA = KAPPAS[0]
COST = CostModel(KAPPA * SPEED, D_MAX_S / SPEED)
PRIOR = ExponentialPrior(gap_s=ExponentialPrior().gap_s / SPEED)
PAYLOAD = bytes(256)
WARM_UP = 0.4
"""The share of the time in which topics are published and nobody subscribes yet."""
POLICIES = ("send", "renewal", "learned")
GIVE_UP_S = 5.0
FLEETS = ("day-night", "day-night-events")


@dataclass(slots=True, frozen=True)
class Life:
    """What happens on one topic, in seconds of the run."""

    topic: str
    world: str
    publishes_s: NDArray[np.float64]
    subscribes_s: NDArray[np.float64]
    away_s: NDArray[np.float64] | None


@dataclass(slots=True)
class Seen:
    """What the subscribers of one broker saw, decision by decision."""

    worlds: list[str] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    retained_bytes: list[int] = field(default_factory=list)
    lost: int = 0
    """Subscribers to whom nothing came at all."""

    @property
    def late(self) -> int:
        """Subscribers to whom something came, but too late."""
        return sum(wait > COST.d_max_s for wait in self.waits_s)

    @property
    def costs(self) -> NDArray[np.float64]:
        """The cost of each decision."""
        return (np.array(self.retained_bytes) > 0) + COST.kappa * np.array(self.waits_s)


def lives_of(topics: int, subscribers: int, seconds: float) -> list[Life]:
    """The lives to be played, each with its subscribers."""
    rng = np.random.default_rng(SEED)
    hour = int(time.time() // 3600) % 24
    return [_life(trace, rng, subscribers, seconds, hour) for trace in make_traces(SEED, topics, 1)]


def _life(trace: Trace, rng: np.random.Generator, subscribers: int, seconds: float, hour: int) -> Life:
    # A fleet's day is cut out at the hour it is now: that is the hour the broker will see.
    start = hour * 3600.0 if trace.topic_class in FLEETS else 0.0
    publishes = (trace.publishes_s - start) / SPEED
    publishes = publishes[(publishes >= 0.0) & (publishes < seconds)]
    away = None
    if trace.away_s is not None:
        away = (trace.away_s - start) / SPEED
        away = away[(away[:, 0] > 0.0) & (away[:, 1] < seconds)]
    if len(publishes) < 2:
        return Life(trace.topic, trace.topic_class, publishes, np.zeros(0), away)
    ends = seconds if trace.topic_class in FLEETS else min(seconds, (trace.end_s - start) / SPEED)
    first = max(WARM_UP * ends, float(publishes[0]) + 0.5)
    last = ends - COST.d_max_s
    times = np.sort(rng.uniform(first, last, subscribers)) if first < last else np.zeros(0)
    return Life(trace.topic, trace.topic_class, publishes, times, away)


class Player:
    """Plays all lives to one broker."""

    def __init__(self, port: int, began: float) -> None:
        self._port = port
        self._began = began
        self._subscribers = 0
        self.seen = Seen()

    async def play(self, lives: list[Life]) -> None:
        """Publish and subscribe until all is over."""
        async with asyncio.TaskGroup() as group:
            for number, life in enumerate(lives):
                group.create_task(self._publish(life, f"publisher-{number}"))
                group.create_task(self._subscribe(life, group))

    async def _until(self, second: float) -> None:
        await asyncio.sleep(max(0.0, self._began + second - time.monotonic()))

    async def _connect(self, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(connect_packet(name))
        await reader.readexactly(4)
        return reader, writer

    async def _publish(self, life: Life, name: str) -> None:
        message = packet(0x33, text(life.topic) + b"\x00\x01" + PAYLOAD)
        events = [(float(when), "publish") for when in life.publishes_s]
        for left, back in () if life.away_s is None else life.away_s.tolist():
            events += [(left, "leave"), (back, "return")]
        reader, writer = await self._connect(name)
        for when, what in sorted(events, key=lambda event: (event[0], event[1] != "leave")):
            await self._until(when)
            if what == "publish":
                writer.write(message)
                await reader.readexactly(4)
            elif what == "leave":
                writer.write(b"\xe0\x00")
                writer.close()
            else:
                reader, writer = await self._connect(name)
        writer.close()

    async def _subscribe(self, life: Life, group: asyncio.TaskGroup) -> None:
        for when in life.subscribes_s:
            await self._until(float(when))
            self._subscribers += 1
            group.create_task(self._wait(life, f"subscriber-{self._subscribers}"))

    async def _wait(self, life: Life, name: str) -> None:
        """One subscriber: from its SUBSCRIBE to the first message."""
        reader, writer = await self._connect(name)
        asked = time.monotonic()
        writer.write(subscribe_packet([life.topic], 1))
        try:
            async with asyncio.timeout(GIVE_UP_S):
                first, size = await _next_publish(reader)
        except TimeoutError:
            self.seen.lost += 1
            return
        finally:
            writer.close()
        self.seen.worlds.append(life.world)
        self.seen.topics.append(life.topic)
        self.seen.waits_s.append(time.monotonic() - asked)
        self.seen.retained_bytes.append(size if first & 1 else 0)


async def _next_publish(reader: asyncio.StreamReader) -> tuple[int, int]:
    """The first byte and the size of the next PUBLISH."""
    while True:
        first = (await reader.readexactly(1))[0]
        length = shift = 0
        size = 1
        while True:
            byte = (await reader.readexactly(1))[0]
            size += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        await reader.readexactly(length)
        if first >> 4 == 3:
            return first, size + length


def learn(topics: tuple[int, int], subscribers: int) -> tuple[LearnedPolicy, Verdict]:
    """A policy that passed the gate, for time that runs faster; the renewal rule alone if none did.

    Cells are relative to the price of a second, so a table learned at one speed holds at another. A broker knows of
    every publisher whether it is connected, so what is learned from must say so too.
    """
    cost = CostModel(KAPPA, D_MAX_S)
    statistics = TrainingStatistics(cost)
    statistics.learn_batch(batch_of(_connected(make_traces(TRAIN_SEED, topics[0], subscribers)), cost))
    learned = statistics.fit()
    verdict = Gate().judge(learned, batch_of(_connected(make_traces(GATE_SEED, topics[1], subscribers)), cost))
    if not verdict.passed:
        return LearnedPolicy({}, COST), Verdict(passed=True)
    return LearnedPolicy(learned.cells, COST), verdict


def _connected(traces: list[Trace]) -> list[Trace]:
    """The same topics with publishers that are known to be connected where nothing else is said."""
    always = np.zeros((0, 2))
    return [replace(trace, away_s=always) if trace.away_s is None else trace for trace in traces]


def replayed(lives: list[Life], policy: Policy) -> float:
    """What the same decisions cost by replay."""
    hour = int(time.time() // 3600) % 24
    costs = []
    for life in lives:
        gaps, known = GapStatistics(), 0
        for now in life.subscribes_s.tolist():
            after = int(np.searchsorted(life.publishes_s, now, side="right"))
            for when in life.publishes_s[known:after].tolist():
                gaps.published(when)
            known = after
            presence = presence_at(
                life.away_s if life.away_s is not None else np.zeros((0, 2)), gaps.last_publish_s, now
            )
            seen = features_of(gaps, now, COST, hour=hour, presence=presence, prior=PRIOR)
            residual = float(life.publishes_s[after]) - now if after < len(life.publishes_s) else float("inf")
            costs.append(COST.of(policy.choose(seen, COST).wait_s, residual))
    return float(np.mean(costs))


def play(lives: list[Life], policy: LearnedPolicy, verdict: Verdict) -> dict[str, Seen]:
    """Play the lives to a broker for each policy, all at once."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="locus-policy-")))
        file = directory / "policy"
        write_policy(file, policy, verdict, "benchmark")
        brokers: dict[str, peers.RunningBroker] = {}
        for name in POLICIES:
            rule = {"d_max_s": COST.d_max_s, "kappa": COST.kappa, "policy": name, "prior_gap_s": PRIOR.gap_s}
            options = {"topics": {"#": rule}, "policy_file": str(file)}
            brokers[name] = stack.enter_context(peers.locus(plugins={**peers.default_plugins(), PLUGIN: options}))

        async def run() -> dict[str, Seen]:
            players = {name: Player(broker.port, time.monotonic() + 0.5) for name, broker in brokers.items()}
            await asyncio.gather(*(player.play(lives) for player in players.values()))
            return {name: player.seen for name, player in players.items()}

        found = asyncio.run(run())
        for name, broker in brokers.items():
            if "Traceback" in broker.log:
                raise LoadError(f"the broker that decides by {name} failed; it said:\n{broker.log[-4000:]}")
        return found


def measure_broker(quick: bool, progress: Callable[[str], None]) -> tuple[list[Row], list[str]]:
    """The rows and remarks of the real broker."""
    topics, subscribers, seconds = (6, 12, 15.0) if quick else (16, 60, 180.0)
    progress("through the broker: learning a policy")
    policy, verdict = learn((40, 20), 100) if quick else learn((240, 100), 300)
    lives = lives_of(topics, subscribers, seconds)
    progress(f"through the broker: {len(lives)} topics for {seconds:g} s, {len(POLICIES)} brokers at once")
    found = play(lives, policy, verdict)
    replays = {each.name: replayed(lives, each) for each in (SendPolicy(), RenewalPolicy(), policy)}
    return rows_of(found), [table_of(found, replays, seconds)]


def rows_of(found: dict[str, Seen]) -> list[Row]:
    """The learned policy against the others, and what was to be reached."""
    send, renewal, learned = (found[name] for name in POLICIES)
    name = f"through the broker, κ={KAPPA:g}, Dmax {D_MAX_S:g} s"
    sent = float(np.mean(learned.retained_bytes))
    late = sum(each.late for each in found.values())
    decisions = sum(len(each.waits_s) + each.lost for each in found.values())
    worst = max(max(each.waits_s) for each in found.values())
    rows = [
        Row(
            f"{name}: cost",
            "cost/subscribe",
            float(learned.costs.mean()),
            peer,
            float(found[peer].costs.mean()),
            less_is_better=True,
            note=f"learned {_interval(learned)}, {peer} {_interval(found[peer])}",
        )
        for peer in ("renewal", "send")
    ]
    rows += [
        Row(
            f"{name}: retained bytes",
            "bytes/subscribe",
            sent,
            "always send",
            float(np.mean(send.retained_bytes)),
            target=1.0 / (1.0 - FEWER_TO_REACH),
            less_is_better=True,
            note=f"{1.0 - sent / float(np.mean(send.retained_bytes)):.0%} fewer, {FEWER_TO_REACH:.0%} to reach; "
            f"renewal {1.0 - float(np.mean(renewal.retained_bytes)) / float(np.mean(send.retained_bytes)):.0%}",
        ),
        Row(
            f"{name}: subscribers served by their deadline",
            "subscribers",
            decisions - late - sum(each.lost for each in found.values()),
            "all of them",
            decisions,
            target=1.0,
            note=f"the longest wait was {worst * SPEED:.2f} s of {D_MAX_S:g}; always sending, {send.late} came "
            f"later than that and the longest was {max(send.waits_s) * SPEED:.2f} s",
        ),
    ]
    return rows


def _interval(seen: Seen) -> Interval:
    return bootstrap_mean(seen.costs, np.ones(len(seen.topics)), seen.topics)


def table_of(found: dict[str, Seen], replays: dict[str, float], seconds: float) -> str:
    """Every policy in every world, and by replay of the same lives."""
    costs: dict[str, dict[str, str]] = defaultdict(dict)
    for name, seen in found.items():
        worlds = np.array(seen.worlds)
        sent = np.array(seen.retained_bytes) > 0
        for world in dict.fromkeys(seen.worlds):
            here = worlds == world
            costs[world][name] = f"{seen.costs[here].mean():.3f} ({sent[here].mean():.2f})"
        costs["all worlds"][name] = f"{seen.costs.mean():.3f} ({sent.mean():.2f})"
        costs["all worlds by replay"][name] = f"{replays[name]:.3f}"
    decisions = len(found["learned"].waits_s)
    head = (
        f"Cost of a subscribe through the broker (in brackets: retained messages sent); κ={KAPPA:g}, "
        f"Dmax {D_MAX_S:g} s, played {SPEED:g} times as fast for {seconds:g} s, {decisions:,} subscribers on each "
        "broker. What a subscriber waits includes its way to the broker and back, which by replay takes no time."
    )
    lines = [
        head,
        "",
        f"| world | {' | '.join(POLICIES)} |",
        "|---|" + "---|" * len(POLICIES),
    ]
    lines += [f"| {world} | {' | '.join(cells[name] for name in POLICIES)} |" for world, cells in costs.items()]
    return "\n".join(lines)
