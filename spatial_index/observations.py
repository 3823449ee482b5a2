"""`Observations`: where users were seen, summarised so that summaries of parts merge into the summary of the whole.

Kept are the last 60 reports of each user, and at most so many users: those with the smallest hashes, which is a fair
sample that does not depend on how the reports were divided. Merging is associative and commutative, and merging the
summaries of parts gives exactly the summary of the whole; so a job may summarise its partitions in any order.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spatial_index.errors import BadCoordinate, BadCount, SpatialIndexError
from spatial_index.spaces import WGS84, checked_places

if TYPE_CHECKING:
    from spatial_index.spaces import Floats, Space

Hashes: TypeAlias = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """Reports of users' places, ordered by user and time. Make one with `Observations.of`; it can be pickled.

    Attributes:
        space: the Earth or a plane.
        users: a 64-bit hash of the user of each report; two of a million users share one with probability 3e-8.
        times: when it was, in seconds or any other unit.
        xs: longitude, or x.
        ys: latitude, or y.
        trail: how many reports of a user are kept, the latest ones.
        most_users: how many users are kept.
    """

    space: Space
    users: Hashes
    times: Floats
    xs: Floats
    ys: Floats
    trail: int
    most_users: int

    @classmethod
    def of(
        cls,
        users: object,
        times: object,
        xs: object,
        ys: object,
        *,
        space: Space = WGS84,
        trail: int = 60,
        most_users: int = 50_000,
    ) -> Observations:
        """Summarise reports given as four arrays of equal length, in any order.

        Raises:
            BadCount: the arrays differ in length, or `trail` or `most_users` is too small.
            BadCoordinate: a place is not in the space, or a time is not a finite number.
            SpatialIndexError: users are neither integers nor strings.
        """
        if trail < 2:
            raise BadCount(f"trail is {trail!r}: it takes at least 2 reports to see a movement")
        if most_users < 1:
            raise BadCount(f"most_users is {most_users!r}: keep at least one")
        px, py = checked_places(space, xs, ys)
        at = np.asarray(times, np.float64)
        hashes = _hashes(np.asarray(users))
        if not len(px) == len(at) == len(hashes):
            raise BadCount(f"there are {len(hashes)} users, {len(at)} times and {len(px)} places: give one of each")
        for wrong in at[~np.isfinite(at)][:1].tolist():
            raise BadCoordinate(f"a time is {wrong!r}: it has to be a finite number")
        return _reduced(cls(space, hashes, at, px, py, trail, most_users))

    def merge(self, *others: Observations) -> Observations:
        """The summary of all the reports behind this one and the others.

        Raises:
            BadCount: they were made with another space, trail or number of users.
        """
        for other in others:
            mine, its = (self.space, self.trail, self.most_users), (other.space, other.trail, other.most_users)
            if mine != its:
                raise BadCount(f"summaries made with {mine} and {its} do not merge: make them alike")
        parts = (self, *others)
        whole = Observations(
            self.space,
            np.concatenate([part.users for part in parts]),
            np.concatenate([part.times for part in parts]),
            np.concatenate([part.xs for part in parts]),
            np.concatenate([part.ys for part in parts]),
            self.trail,
            self.most_users,
        )
        return _reduced(whole)

    def __len__(self) -> int:
        return len(self.users)

    @property
    def users_kept(self) -> int:
        """How many users the summary has."""
        return len(np.unique(self.users))

    @property
    def users_seen(self) -> float:
        """How many users there were: exact while all are kept, then estimated from how dense the kept hashes are."""
        kept = np.unique(self.users)
        if len(kept) < self.most_users:
            return float(len(kept))
        return float(max(len(kept), (len(kept) - 1) / ((float(kept[-1]) + 1) / 2.0**64)))


def _reduced(all_reports: Observations) -> Observations:
    """The latest reports of the users with the smallest hashes, in order."""
    whole = all_reports
    order = np.lexsort((whole.ys, whole.xs, whole.times, whole.users))
    users, times, xs, ys = whole.users[order], whole.times[order], whole.xs[order], whole.ys[order]
    # One report a user and time: telemetry is delivered at least once.
    first = np.ones(len(users), dtype=bool)
    first[1:] = (users[1:] != users[:-1]) | (times[1:] != times[:-1])
    users, times, xs, ys = users[first], times[first], xs[first], ys[first]
    _, counts = np.unique(users, return_counts=True)
    before_last = np.repeat(np.cumsum(counts), counts) - 1 - np.arange(len(users))
    rank = np.repeat(np.arange(len(counts)), counts)
    keep = (before_last < whole.trail) & (rank < whole.most_users)
    return Observations(whole.space, users[keep], times[keep], xs[keep], ys[keep], whole.trail, whole.most_users)


def _hashes(users: NDArray[np.generic]) -> Hashes:
    if users.ndim != 1:
        raise BadCount(f"users have shape {users.shape}: give one user for each report")
    if not len(users):
        return np.empty(0, dtype=np.uint64)
    if users.dtype.kind in "iu":
        return _mixed(users.astype(np.uint64))
    if users.dtype.kind not in "USO" or not all(isinstance(user, str | bytes) for user in users.tolist()):
        raise SpatialIndexError(f"users are of type {users.dtype}: give integers or strings")
    names, where = np.unique(users, return_inverse=True)
    hashes = [
        int.from_bytes(hashlib.blake2b(n.encode() if isinstance(n, str) else n, digest_size=8).digest(), "big")
        for n in names.tolist()
    ]
    return np.array(hashes, dtype=np.uint64)[where]


def _mixed(numbers: Hashes) -> Hashes:
    """Splitmix64's finaliser: a bijection, so that integers never share a hash."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)
