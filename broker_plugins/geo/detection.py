"""Who wants to know of an object that enters, leaves or crosses an area, judged by its last report and this one.

What counts as *before* is the object's last report since the subscription was made. So an object heard of for the first
time enters the areas it is in, leaves none and crosses none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_plugins.grammar import Detect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from broker_plugins.engine.subscription import Subscription
    from broker_plugins.geo.spots import Group, Spot, Watch
    from broker_plugins.geo.tracks import Track
    from broker_plugins.places import Place


def transitions(
    track: Track | None, place: Place, inside: frozenset[Spot], groups: Iterable[Group]
) -> Iterator[tuple[Subscription, Watch]]:
    """The watching subscriptions that an object's report concerns.

    Args:
        track: the object's last report, if it is remembered.
        place: where it is now.
        inside: the watched spots it is in now.
        groups: those whose filter matches the object's topic.
    """
    for spot in inside:
        for subscription, watch in (spot.watchers or {}).items():
            if watch.detect is Detect.ENTER and (
                track is None or track.sequence <= watch.since or spot not in track.inside
            ):
                yield subscription, watch
    if track is None:
        return
    for spot in track.inside - inside:
        if spot.shape is None:
            continue  # a fence that was deleted is silent
        for subscription, watch in (spot.watchers or {}).items():
            if watch.detect is Detect.EXIT and track.sequence > watch.since:
                yield subscription, watch
    if len(place) == 2 and len(track.place) == 2:
        for group in groups:
            if group.crossing:
                yield from _crossings(group, track, place, inside)


def _crossings(
    group: Group, track: Track, place: tuple[float, float], inside: frozenset[Spot]
) -> Iterator[tuple[Subscription, Watch]]:
    assert len(track.place) == 2
    start = track.place
    for spot in group.find(_around(start, place, group.space.bounds.east == 180.0)):
        if not spot.watchers or spot in inside or spot in track.inside:
            continue
        wanting = [
            (subscription, watch)
            for subscription, watch in spot.watchers.items()
            if watch.detect is Detect.CROSS and track.sequence > watch.since
        ]
        zone = spot.zone() if wanting else None
        # A spot may have come here only now: the object was outside before and must be outside where it is now.
        if zone is not None and not zone.holds(start) and zone.crossed(start, place):
            yield from wanting


def _around(start: tuple[float, float], end: tuple[float, float], globe: bool) -> Place:
    """The box around a way; on the globe a way of more than 180 degrees goes the other way round."""
    (x0, y0), (x1, y1) = start, end
    west, east = min(x0, x1), max(x0, x1)
    if globe and east - west > 180.0:
        west, east = east, west
    return west, min(y0, y1), east, max(y0, y1)
