"""Paper 002, Δ-causal order: control bytes and computing of four algorithms, and who is safe in bad weather."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import matplotlib as mpl

from benchmarks.causal import growth
from benchmarks.reproduction import causal_timeline
from benchmarks.reproduction.causal_printed import ALL_MENDS, Mends, PrintedNodes
from benchmarks.reproduction.causal_rivals import KshemkalyaniSinghal
from benchmarks.reproduction.causal_storm import LocusNodes, Storm, Weather, many_storms
from benchmarks.reproduction.causal_trace import (
    KEEPING,
    KS,
    OURS,
    PAPER,
    PRS,
    RST,
    Cost,
    DeltaCausal,
    Timeless,
    Traffic,
    algorithms,
    run,
    trace,
)

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

SIZES = (5, 10, 15, 20, 25, 30, 35, 40)
LIFETIMES_MS = (50, 100, 150, 250, 500)
DELAYS_MS = (5, 30)
CALM = Weather(doubling=0.0)
WEATHERS = {
    "calm": CALM,
    "coarse clocks": replace(CALM, clock_grain_us=5_000),
    "skewed clocks": replace(CALM, skew_us=60_000),
    "late timers": replace(CALM, late_timer_share=0.3),
    "all three": replace(CALM, clock_grain_us=5_000, skew_us=60_000, late_timer_share=0.3),
}
VARIANTS = {
    "as printed, the letter": Mends(entry_time=False),
    "as printed, the entry's time in the loops (2)": Mends(),
    "and the delivered message recorded (1)": Mends(record_delivered=True),
    "all five mends": ALL_MENDS,
    "all but 1, recording the delivered message": replace(ALL_MENDS, record_delivered=False),
    "all but 2, the entry's time": replace(ALL_MENDS, entry_time=False),
    "all but 3, strictly increasing stamps": replace(ALL_MENDS, strict_stamps=False),
    "all but 4, the skew margin": replace(ALL_MENDS, skew_margin=False),
    "all but 5, draining in stamp order": replace(ALL_MENDS, ordered_drain=False),
    "all five, expired entries kept": replace(ALL_MENDS, drop_expired=False),
}
DELIVERIES = 20_000
STORM_DELIVERIES = 300_000


def reproduce(out: Path, progress: Callable[[str], None]) -> None:
    """Run the paper's evaluation and write `paper-002.md` and its PNG plots into `out`."""
    causal_timeline.draw(out / "paper-002-timeline.png")
    costs = _costs(progress)
    _plot(
        out / "paper-002-bytes.png",
        "control bytes a message, packed",
        {name: [cost.packed for cost in by_size] for name, by_size in costs.items() if name != KEEPING},
    )
    _plot(
        out / "paper-002-cost.png",
        "µs of computing: a send to three and its three deliveries",
        {name: [cost.us_a_message for cost in by_size] for name, by_size in costs.items() if name != KEEPING},
    )
    lifetimes = _lifetimes(progress)
    safety = _safety(progress)
    storms = _storms(progress)
    same = all(
        sorted(by_size[place].deliveries) == sorted(costs[KS][place].deliveries)
        for by_size in costs.values()
        for place in range(len(SIZES))
    )
    page = PAGE.format(
        bytes_table=_table(("n", *costs), _by_size(costs, lambda cost: cost.packed)),
        plain_table=_table(("n", *costs), _by_size(costs, lambda cost: cost.plain)),
        cost_table=_table(("n", *costs), _by_size(costs, lambda cost: cost.us_a_message)),
        exponents=_table(
            ("", *costs),
            [
                ("packed", *(f"{growth(_points(by_size, packed=True)):.2f}" for by_size in costs.values())),
                ("plain", *(f"{growth(_points(by_size, packed=False)):.2f}" for by_size in costs.values())),
            ],
        ),
        lifetimes=_table(("delay", "Δ", "Δ-causal, shipped", KS, "ratio", "ungrouped", "plain ratio"), lifetimes),
        same="the same in all of them" if same else "NOT the same in all of them",
        deliveries=f"{DELIVERIES:,}",
        safety=_table(("variant", *WEATHERS), safety),
        storms=storms,
        verdict=_verdict(costs),
    )
    (out / "paper-002.md").write_text(page, encoding="utf-8")


def _costs(progress: Callable[[str], None]) -> dict[str, list[Cost]]:
    costs: dict[str, list[Cost]] = {}
    for size in SIZES:
        traffic = Traffic(size)
        sends = trace(traffic)
        for name, algorithm in algorithms(traffic).items():
            progress(f"{size} processes, {name}")
            costs.setdefault(name, []).append(run(algorithm, traffic, sends))
    return costs


def _lifetimes(progress: Callable[[str], None]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for delay in DELAYS_MS:
        for lifetime in LIFETIMES_MS:
            progress(f"40 processes, delays of {delay} ms, lifetime {lifetime} ms")
            traffic = Traffic(
                40,
                delay_us=delay * 1000,
                lifetime_us=lifetime * 1000,
                longest_delay_us=lifetime * 800,
                messages=2_000,
            )
            sends = trace(traffic)
            ours = run(DeltaCausal(traffic), traffic, sends)
            theirs = run(Timeless(KshemkalyaniSinghal, 40), traffic, sends)
            loose = run(Timeless(KshemkalyaniSinghal, 40, "ungrouped_bytes"), traffic, sends)
            rows.append(
                (
                    f"{delay} ms",
                    f"{lifetime} ms",
                    f"{ours.packed:.0f}",
                    f"{theirs.packed:.0f}",
                    f"{ours.packed / theirs.packed:.2f}",
                    f"{ours.packed / loose.packed:.2f}",
                    f"{ours.plain / theirs.plain:.2f}",
                )
            )
    return rows


def _safety(progress: Callable[[str], None]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, mends in VARIANTS.items():
        progress(f"safety: {name}")
        counts = [
            Storm(weather, PrintedNodes(weather, mends), seed=5, decisions=False).run(DELIVERIES).violations
            for weather in WEATHERS.values()
        ]
        rows.append((name, *(f"{count:,}" for count in counts)))
    progress("safety: the shipped core")
    tallies = [Storm(weather, LocusNodes(weather), seed=5).run(DELIVERIES) for weather in WEATHERS.values()]
    rows.append(("**shipped core**", *(f"**{tally.violations}**" for tally in tallies)))
    rows.append(("shipped core, decisions unlike the oracle's", *(f"{tally.disagreements}" for tally in tallies)))
    return rows


def _storms(progress: Callable[[str], None]) -> str:
    tally, worlds = many_storms(STORM_DELIVERIES, progress, per_world=5_000, seed=700_000)
    return (
        f"{tally.deliveries:,} deliveries in {worlds} random worlds: **{tally.violations} out of causal order, "
        f"{tally.disagreements} decided otherwise or at another moment than the oracle**. On the way {tally.sent:,} "
        f"messages were sent, {tally.lost:,} copies lost and {tally.doubled:,} doubled, {tally.late:,} came late, "
        f"{tally.waited:,} had to wait, {tally.outlived:,} outlived a shortened lifetime while waiting, "
        f"{tally.overflowed:,} found the waiting room full and {tally.stalled:,} fell to a host that acted too late."
    )


def _points(by_size: list[Cost], packed: bool) -> list[tuple[int, float]]:
    return [(size, cost.packed if packed else cost.plain) for size, cost in zip(SIZES, by_size, strict=True)]


def _by_size(costs: dict[str, list[Cost]], pick: Callable[[Cost], float]) -> list[tuple[str, ...]]:
    return [
        (str(size), *(f"{pick(by_size[place]):,.0f}" for by_size in costs.values())) for place, size in enumerate(SIZES)
    ]


def _table(header: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    header = tuple(header)
    lines = [header, tuple("---" if place == 0 else "---:" for place in range(len(header))), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _plot(path: Path, label: str, series: dict[str, list[float]]) -> None:
    styles = {OURS: ("C3", "o-"), PAPER: ("C1", "o--"), KS: ("C0", "s-"), PRS: ("C2", "^-"), RST: ("C7", "v-")}
    figure, axes = plt.subplots(figsize=(7, 4.2))
    for name, values in series.items():
        colour, style = styles[name]
        axes.plot(SIZES, values, style, color=colour, label=name, ms=4)
    axes.set_yscale("log")
    axes.set_xlabel("processes")
    axes.set_ylabel(label)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _verdict(costs: dict[str, list[Cost]]) -> str:
    """The paper's claims beside what was measured at the largest size."""
    last = {name: by_size[-1] for name, by_size in costs.items()}
    took = {name: f"{cost.us_a_message:.0f}" for name, cost in last.items()}
    slope = growth(_points(costs[PAPER], packed=False))
    rows = [
        (
            "far fewer bytes than Raynal and Prakash",
            f"{last[RST].plain / last[PAPER].plain:.1f}× and {last[PRS].plain / last[PAPER].plain:.1f}× fewer",
            _word(min(last[RST].plain, last[PRS].plain) > 3 * last[PAPER].plain),
        ),
        (
            "no great difference to Kshemkalyani in bytes",
            f"{last[PAPER].plain / last[KS].plain:.2f}× (expired kept: {last[KEEPING].plain / last[KS].plain:.2f}×)",
            _word(0.4 < last[PAPER].plain / last[KS].plain < 2.5),
        ),
        ("bytes grow linearly", f"exponent {slope:.2f}", _word(slope <= 1.1)),
        (
            "Kshemkalyani computes much longer than all others",
            f"{took[KS]} µs against {took[PAPER]} (Δ-causal with the same kind of sets), {took[PRS]} and {took[RST]}",
            _word(last[KS].us_a_message > 1.5 * max(last[name].us_a_message for name in (PAPER, PRS, RST))),
        ),
        (
            "Δ-causal computes a little less than Raynal and Prakash",
            f"{took[PAPER]} µs as in the paper, {took[OURS]} shipped with bytes, against {took[RST]} and {took[PRS]}",
            _word(last[PAPER].us_a_message < min(last[RST].us_a_message, last[PRS].us_a_message)),
        ),
    ]
    return _table(("the paper says, at its largest n", f"here, n={SIZES[-1]}", "reproduced"), rows)


def _word(holds: bool) -> str:
    return "yes" if holds else "no"


PAGE = """# Paper 002 re-run: Δ-causal order for real-time messages

Written by `locus reproduce 002`; every figure below comes from that run. The algorithm, and where the shipped one
departs from the paper, is explained in [Δ-causal order](../structures/delta-causal.md).

## The setting, and what the paper leaves open

The paper gives the mean time between sends (0.1 s, exponential), 10,000 messages to warm up and 50,000 to measure. It
gives neither the size of groups, nor delays, nor Δ; its figures are lost. Here every process sends ten messages a
second, each to three others drawn anew; delays are exponential with a mean of 30 ms and never above 200 ms; Δ is 250
ms; clocks may be off by 5 ms; 1,000 messages warm up and 4,000 are measured. Nothing is lost or late, because the
three rivals know no lifetimes and would wait for ever. Who was delivered what, and when, was {same}.

## Control bytes against the number of processes (figure 4)

![control bytes](paper-002-bytes.png)

Packed, that is as the shipped wire format does it: messages stand sender by sender, a byte for each sender; a byte for
a message's age in hundredths of Δ, because stamps are rounded down to these; a byte for each open destination. Rivals
are counted as if they were packed just as tightly: Kshemkalyani and Singhal's log sender by sender too, with two bytes
for the newest counter of each and one for the difference to each older one; counters of the others in two bytes:

{bytes_table}

Plain, that is four bytes for each identifier and counter and eight for each time, as papers count:

{plain_table}

Exponents of growth (a power law through the points):

{exponents}

*Paper mended* is the printed algorithm with the five mends, which also drops expired entries; *expired kept* empties
them but keeps the newest of each sender, as the print does. The *shipped* core sends no empty entries at all: it
remembers for itself how far it knows each sender, which keeps settled messages from coming back.

How much a lifetime saves against Kshemkalyani and Singhal's algorithm, which is optimal without one, depends on how
many messages a process sends within Δ. With 40 processes, one send each 100 ms:

{lifetimes}

*Ungrouped* compares with Kshemkalyani and Singhal's log written entry by entry, a byte for the sender and two for the
counter, as one would without our format as an example.

Where Δ is short beside the gap between sends, almost everything a message would have to carry has expired, and
Δ-causal order is several times cheaper. Where Δ is long, expiry hardly helps and both carry the same knowledge.

## Computing against the number of processes (figure 5)

![computing](paper-002-cost.png)

Microseconds of processor time for a message: one send to three and its three deliveries, in Python. The shipped core
does more than the others here, for its time includes writing and reading the bytes.

{cost_table}

## The paper's claims

{verdict}

What the paper says of bytes reproduces. What it says of time does not: Kshemkalyani and Singhal's steps are those of
the Δ-causal algorithm without expiry and without the pass over pairs of messages from one sender, and there is
nothing in them that would make them slower. The differences in figure 5 are those of data structures: with bit sets
instead of sets of numbers the same algorithm, bytes included, takes half the time at n=40. The pass over pairs, by
the way, has nothing to do once delivered messages are recorded; the shipped core leaves it out.

The paper's algorithm saves bytes against Kshemkalyani and Singhal's only through lifetimes: fewer messages are worth
mentioning, and an age that is bounded by a lifetime takes a byte where a counter takes two. Half their bytes or fewer
are reached where Δ is up to about one and a half times the gap between a process's sends; at two and a half times it
only against a log that is written entry by entry, and for long Δ not at all. Considered and left out: to name entries
relative to what a destination is known to know, which saves nothing where two processes hear from each other less
often than once in Δ, as here; to drop entries that expire before they can matter, which needs a lower bound on delays
that no network promises; and to pack sets into bits, which shortens both sides alike.

## Safety: the print and the mends

Deliveries that came after the delivery of something they had to precede, out of {deliveries} deliveries each, in a
world of six processes with 5 % loss, heavy-tailed delays and answers to what was heard. Clocks read in steps of 5 ms,
off by up to 60 ms, timers up to half a lifetime late, or all of it at once:

{safety}

The printed algorithm never records the message it has just delivered, so nobody learns that it is still open
elsewhere. That one mend is enough in calm weather; each of the others is needed for a weather of its own.

Without mend 2, a message waits until its own lifetime has passed for something that was never sent, and what has
nothing to wait for overtakes it; delivering it then, the process takes all it knows for expired. Where the skew
margin keeps it from forgetting, order holds, but every answer takes a whole lifetime.

The shipped core against an oracle that keeps the whole history of the world, in random worlds with 2 to 12 processes,
up to 30 % loss, skew, ties, doubled messages, shortened lifetimes, late timers and tiny waiting rooms:

{storms}

`locus bench causal` does the same for ten million deliveries.

## A run, drawn

![timeline](paper-002-timeline.png)

m2 answers m1, so *west* holds it until m1, on a slow link, has come. m4 answers m3, which the network has lost for
*west*: it waits until m3 could no longer come in time, and not longer. m5 arrives after its lifetime and is dropped.
"""
