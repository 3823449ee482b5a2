"""Objects remembered in bounded memory, and what counts as entering, leaving and crossing."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.geo.detection import transitions
from broker_plugins.geo.spots import Group, Watch
from broker_plugins.geo.tracks import Track, Tracks
from broker_plugins.grammar import Detect
from spatial_index.spaces import Plane

PLANE = Plane(-10.0, -10.0, 10.0, 10.0)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers(0, 4)), max_size=60),
    st.integers(1, 5),
    st.integers(1, 8),
)
def test_no_more_is_remembered_than_allowed_and_the_latest_always_is(reports, objects, insides) -> None:
    tracks = Tracks(objects, insides)
    spots = [SimpleNamespace(number=number) for number in range(5)]
    model: dict[str, int] = {}
    for sequence, (topic, count) in enumerate(reports):
        tracks.report(topic, (0.0, 0.0), frozenset(map(id, spots[:count])), sequence)
        model.pop(topic, None)
        model[topic] = count
        while len(model) > objects or (sum(model.values()) > insides and len(model) > 1):
            del model[next(iter(model))]
        assert {each: len(tracks.get(each).inside) for each in "abcdefg" if tracks.get(each)} == model
        assert len(tracks) == len(model)
        assert tracks.insides == sum(model.values())
        assert tracks.get(topic).sequence == sequence


def watched(detect: Detect, since: int = 0):
    group = Group("t", PLANE)
    spot = group.spot("area")
    spot.watchers = {f"subscriber to {detect.value}": Watch(detect, None, since)}
    group.watched, group.crossing = 1, int(detect is Detect.CROSS)
    group.place(spot, (0.0, 0.0, 1.0, 1.0))
    return group, spot


def concerned(group, spot, before, now, sequence=5):
    track = (
        None if before is None else Track(before, frozenset([spot]) if spot.holds(before) else frozenset(), sequence)
    )
    inside = frozenset([spot]) if spot.holds(now) else frozenset()
    return bool(list(transitions(track, now, inside, [group])))


IN, ALSO_IN, OUT, ACROSS, BESIDE = (0.5, 0.5), (0.6, 0.6), (-1.0, 0.5), (2.0, 0.5), (-1.0, 3.0)
AREA = (0.4, 0.4, 3.0, 3.0)


def test_every_step_concerns_who_should_hear_of_it() -> None:
    enter, leave, cross = (watched(detect) for detect in (Detect.ENTER, Detect.EXIT, Detect.CROSS))
    table = {
        (None, IN): (True, False, False),
        (None, OUT): (False, False, False),
        (OUT, IN): (True, False, False),
        (IN, ALSO_IN): (False, False, False),
        (IN, OUT): (False, True, False),
        (OUT, BESIDE): (False, False, False),
        (OUT, ACROSS): (False, False, True),
        (OUT, AREA): (True, False, False),
        (AREA, OUT): (False, True, False),
    }
    for (before, now), expected in table.items():
        assert tuple(concerned(*each, before, now) for each in (enter, leave, cross)) == expected, (before, now)


def test_what_was_before_the_subscription_does_not_count() -> None:
    enter, leave, cross = (watched(detect, since=5) for detect in (Detect.ENTER, Detect.EXIT, Detect.CROSS))
    assert concerned(*enter, IN, ALSO_IN)
    assert not concerned(*leave, IN, OUT)
    assert not concerned(*cross, OUT, ACROSS)


def test_a_spot_that_is_nowhere_is_silent() -> None:
    group, spot = watched(Detect.EXIT)
    track = Track(IN, frozenset([spot]), 5)
    group.place(spot, None)
    assert not list(transitions(track, OUT, frozenset(), [group]))
