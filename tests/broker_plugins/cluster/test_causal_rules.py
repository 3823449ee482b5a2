"""What the operator writes under `causal:`."""

from __future__ import annotations

import pytest

from broker_plugins.cluster.causal_rules import GroupRule, digest, read_rules
from broker_plugins.cluster.options import ClusterOptions
from broker_plugins.engine import EngineError


def test_groups_are_read_in_their_order() -> None:
    rules = read_rules({"av/#": "250ms", "city/+/alarm": "1.5s", "slow": "2m"})
    assert rules == (
        GroupRule("av/#", 250_000),
        GroupRule("city/+/alarm", 1_500_000),
        GroupRule("slow", 120_000_000),
    )
    assert ClusterOptions(causal={"av/#": "250ms"}).causal_rules == rules[:1]


@pytest.mark.parametrize(
    ("causal", "said"),
    [
        ({"av/#/x": "1s"}, "'av/#/x' is no topic filter"),
        ({"": "1s"}, "is no topic filter"),
        ({"$geo/cell:u/av/#": "1s"}, "write the ordinary filter"),
        ({"av/#": 250}, "250 of 'av/#' is no text with a unit: write 250ms"),
        ({"av/#": "250"}, "'250' of 'av/#' cannot be read"),
        ({"av/#": "soon"}, "cannot be read"),
        ({"av/#": "-1s"}, "cannot be read"),
        ({"av/#": "0.5ms"}, "outside 1ms..10m"),
        ({"av/#": "11m"}, "outside 1ms..10m"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(causal: dict[str, object], said: str) -> None:
    with pytest.raises(EngineError, match=r"causal: ") as caught:
        ClusterOptions(causal=causal)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{"causal_clock_part": 0.0}, {"causal_clock_part": 1.5}, {"causal_skew_ms": -1.0}, {"max_causal_waiting": 0}],
)
def test_bounds_are_checked(options: dict[str, float]) -> None:
    with pytest.raises(EngineError, match=next(iter(options))):
        ClusterOptions(**options)  # type: ignore[arg-type]  # wrong on purpose


def test_a_digest_tells_other_groups_and_another_order() -> None:
    some, other = {"a/#": "1s", "b/#": "1s"}, {"b/#": "1s", "a/#": "1s"}
    digests = [digest(read_rules(each)) for each in (some, other, {"a/#": "2s", "b/#": "1s"}, {})]
    assert len(set(digests)) == len(digests)
    assert digest(read_rules(dict(some))) == digests[0]
