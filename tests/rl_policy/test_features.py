from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_policy import CostModel, Features, GapStatistics, Presence, features_of
from rl_policy.features import cells_of, parent_of
from rl_policy.renewal import recent_renewal_of, renewal_of

COST = CostModel(0.2, 10.0)
positive = st.floats(1e-6, 1e6)
any_features = st.builds(
    Features,
    age_s=st.floats(0.0, 1e6),
    gaps=st.integers(0, 64),
    mean_gap_s=positive,
    typical_gap_s=positive,
    last_gap_s=positive,
    variation=st.floats(0.0, 10.0),
    hour=st.none() | st.integers(0, 23),
    presence=st.sampled_from(Presence),
    renewal_wait_s=st.floats(0.0, 10.0),
    recent_wait_s=st.floats(0.0, 10.0),
)


def topic_with(gaps: list[float]) -> tuple[GapStatistics, float]:
    known, now = GapStatistics(), 0.0
    known.published(now)
    for gap in gaps:
        now += gap
        known.published(now)
    return known, now


@given(any_features)
def test_every_cell_lies_in_the_next(features) -> None:
    cells = cells_of(features, COST.kappa)
    assert [parent_of(cell) for cell in cells] == [*cells[1:], None]


@given(any_features, any_features)
def test_a_cell_stands_for_one_level_only(one, other) -> None:
    ours, theirs = cells_of(one, COST.kappa), cells_of(other, COST.kappa)
    for cell in set(ours) & set(theirs):
        # What lies around a shared cell is shared too; a clash between levels would break this.
        assert ours[ours.index(cell) :] == theirs[theirs.index(cell) :]


def test_what_is_seen_is_what_the_gaps_say() -> None:
    known, now = topic_with([4.0] * 20 + [1.0] * 8)
    seen = features_of(known, now + 0.5, COST, hour=7, presence=Presence.BACK)
    assert seen is not None
    assert (seen.age_s, seen.gaps, seen.typical_gap_s, seen.last_gap_s) == (0.5, 28, 1.0, 1.0)
    assert seen.mean_gap_s == pytest.approx(88 / 28)
    assert (seen.hour, seen.presence) == (7, Presence.BACK)
    assert seen.renewal_wait_s == renewal_of(known, 0.5, COST)
    assert seen.recent_wait_s == recent_renewal_of(known, 0.5, COST)


def test_nothing_is_seen_of_a_topic_never_published_or_interrupted() -> None:
    assert features_of(None, 0.0, COST) is None
    assert features_of(GapStatistics(), 0.0, COST) is None
    known, now = topic_with([1.0] * 9)
    known.interrupted()
    assert features_of(known, now, COST) is None


def test_a_topic_published_once_has_features() -> None:
    known, now = topic_with([])
    seen = features_of(known, now + 1.0, COST)
    assert seen is not None
    assert seen.gaps == 0
    assert len(cells_of(seen, COST.kappa)) == 2


def test_an_hour_that_is_none_is_refused() -> None:
    known, now = topic_with([1.0])
    with pytest.raises(ValueError, match="hour is 24"):
        features_of(known, now, COST, hour=24)


def test_covariates_make_different_cells() -> None:
    known, now = topic_with([4.0] * 20)
    at_night = features_of(known, now + 1.0, COST, hour=3)
    by_day = features_of(known, now + 1.0, COST, hour=12)
    away = features_of(known, now + 1.0, COST, hour=3, presence=Presence.AWAY)
    assert at_night is not None
    assert by_day is not None
    assert away is not None
    assert cells_of(at_night, 0.2)[0] != cells_of(by_day, 0.2)[0]
    assert cells_of(at_night, 0.2)[1:] == cells_of(by_day, 0.2)[1:]
    assert not set(cells_of(at_night, 0.2)) & set(cells_of(away, 0.2))
