"""Made-up topics to learn and measure on: their publishes, their subscribers, the absences of their publishers.

In the first five worlds the gaps of a topic are all there is to know. In the last two, a fleet that works by day and
is nearly silent by night, whose publishers lose their connection now and then, there is more: the hour, and whether
the publisher is connected, which a broker knows at once for a proper DISCONNECT and only after the keep-alive for a
lost radio.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

DAY_S: Final = 86_400.0


@dataclass(slots=True, frozen=True)
class Trace:
    """One topic's life.

    Args:
        topic: its name.
        topic_class: the world it belongs to.
        publishes_s: when retained messages were published, in order.
        subscribes_s: when new subscribers came, in order.
        end_s: when watching ended.
        away_s: the times (from, until) at which the broker knew the publisher as disconnected, in order; one that was
            back before it was missed has two equal times. None if the broker never knows.
        starts_at_s: the time of day at second 0.
    """

    topic: str
    topic_class: str
    publishes_s: NDArray[np.float64]
    subscribes_s: NDArray[np.float64]
    end_s: float
    away_s: NDArray[np.float64] | None = field(default=None)
    starts_at_s: float = 0.0


def _scale(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _subscribes(rng: np.random.Generator, count: int, start_s: float, end_s: float) -> NDArray[np.float64]:
    return np.sort(rng.uniform(start_s, end_s, count))


def _from_gaps(rng: np.random.Generator, name: str, world: str, gaps: NDArray[np.float64], subscribers: int) -> Trace:
    publishes = np.cumsum(np.maximum(gaps, 1e-3))
    end = float(publishes[-1])
    return Trace(name, world, publishes, _subscribes(rng, subscribers, 0.0, end), end)


def poisson(rng: np.random.Generator, name: str, subscribers: int) -> Trace:
    """Independent publishes at a mean gap between half a second and a minute."""
    return _from_gaps(rng, name, "poisson", rng.exponential(_scale(rng, 0.5, 60.0), 600), subscribers)


def periodic(rng: np.random.Generator, name: str, subscribers: int) -> Trace:
    """A clock of one second to a minute with 2 % jitter, that skips 3 % of its beats."""
    period = _scale(rng, 1.0, 60.0)
    beats = np.arange(1, 601) * period + rng.normal(0.0, 0.02 * period, 600)
    kept = np.sort(beats[rng.random(600) > 0.03])
    return _from_gaps(rng, name, "periodic", np.diff(kept, prepend=0.0), subscribers)


def bursty(rng: np.random.Generator, name: str, subscribers: int) -> Trace:
    """Bursts of about six messages half a second to two seconds apart, with silences of ten seconds to two minutes."""
    quick, silent = _scale(rng, 0.5, 2.0), _scale(rng, 10.0, 120.0)
    gaps = np.where(rng.random(800) < 1 / 6, rng.exponential(silent, 800), rng.exponential(quick, 800))
    return _from_gaps(rng, name, "bursty", gaps, subscribers)


def pareto(rng: np.random.Generator, name: str, subscribers: int) -> Trace:
    """Heavy tails: most gaps short, a few without measure."""
    shape, least = rng.uniform(1.2, 2.2), _scale(rng, 0.3, 8.0)
    return _from_gaps(rng, name, "pareto", least * (1.0 + rng.pareto(shape, 600)), subscribers)


def drifting(rng: np.random.Generator, name: str, subscribers: int) -> Trace:
    """A clock with a tenth of jitter whose pace wanders between half a second and a minute."""
    walk = np.cumsum(rng.normal(0.0, 0.08, 1200)) + np.log(_scale(rng, 1.0, 30.0))
    low, high = np.log(0.5), np.log(60.0)
    folded = np.abs((walk - low) % (2 * (high - low)) - (high - low))  # reflected at both ends
    gaps = np.exp(high - folded) * np.maximum(rng.normal(1.0, 0.1, 1200), 0.05)
    return _from_gaps(rng, name, "drifting", gaps, subscribers)


def day_night(rng: np.random.Generator, name: str, subscribers: int) -> Trace:
    """A fleet on the move that reports by a clock of two to eight seconds, out of reach once in a dozen reports."""
    return _fleet(rng, name, subscribers, "day-night", _scale(rng, 2.0, 8.0), 0.05, 12)


def day_night_events(rng: np.random.Generator, name: str, subscribers: int) -> Trace:
    """A fleet that reports what happens to it, at random times, and is out of reach once in forty reports.

    Here the hour and the connection are known too, but tell little: what is left to chance is most of what is lost.
    """
    return _fleet(rng, name, subscribers, "day-night-events", _scale(rng, 1.0, 5.0), None, 40)


def _fleet(
    rng: np.random.Generator, name: str, subscribers: int, world: str, pace: float, jitter: float | None, run: int
) -> Trace:
    """Two days of a publisher that works from 7 to 19 o'clock, by night at a tenth of the pace.

    When it loses its connection it is away for ten to ninety seconds on average. Eight of ten times the
    broker sees the connection close; else it misses it only after one and a half keep-alives, if it is not back by
    then.
    """
    keep_alive, out = float(rng.choice([10.0, 20.0, 30.0])), _scale(rng, 10.0, 90.0)
    publishes: list[float] = []
    away: list[tuple[float, float]] = []
    now, end = 0.0, 2 * DAY_S
    while now < end:
        turn = _next_turn(now)
        gap = pace * (1.0 if 7 <= (now / 3600.0) % 24 < 19 else 10.0)
        reports = int(rng.geometric(1 / run))
        # Back, it waits for its next beat; then a run of reports until the connection is lost somewhere in a gap.
        shape = rng.exponential(1.0, reports) if jitter is None else rng.normal(1.0, jitter, reports)
        if jitter is not None:
            shape[0] = rng.random()
        times = now + np.cumsum(gap * np.maximum(shape, 0.05))
        times = times[times < turn]
        publishes.extend(times.tolist())
        if len(times) < reports:  # day broke or night fell first: the run goes on at the other pace
            now = turn
            continue
        lost = float(times[-1] + rng.uniform(0.0, gap))
        back = lost + float(rng.exponential(out))
        noticed = lost if rng.random() < 0.8 else lost + 1.5 * keep_alive
        away.append((min(noticed, back), back))
        now = back
    known = np.array(away, dtype=np.float64).reshape(-1, 2)
    times = np.array([time for time in publishes if time < end])
    return Trace(name, world, times, _subscribes(rng, subscribers, 0.0, end), end, known)


def _next_turn(now_s: float) -> float:
    """When day breaks or night falls next."""
    day, hour = divmod(now_s, DAY_S)
    for turn in (7 * 3600.0, 19 * 3600.0):
        if hour < turn:
            return day * DAY_S + turn
    return (day + 1) * DAY_S + 7 * 3600.0


WORLDS: Final[dict[str, Callable[[np.random.Generator, str, int], Trace]]] = {
    "poisson": poisson,
    "periodic": periodic,
    "bursty": bursty,
    "pareto": pareto,
    "drifting": drifting,
    "day-night": day_night,
    "day-night-events": day_night_events,
}


def make_traces(seed: int, topics: int, subscribers: int, worlds: tuple[str, ...] = tuple(WORLDS)) -> list[Trace]:
    """`topics` topics of each world, each with `subscribers` subscribers; another seed gives other topics."""
    traces = []
    for world in worlds:
        if world not in WORLDS:
            raise ValueError(f"no world {world!r}; there are {', '.join(WORLDS)}")
        number = list(WORLDS).index(world)
        for index in range(topics):
            rng = np.random.default_rng([seed, number, index])
            traces.append(WORLDS[world](rng, f"{world}/{seed}/{index}", subscribers))
    return traces
