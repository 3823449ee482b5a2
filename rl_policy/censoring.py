"""Records that end before the answer is known, and how the others make up for them.

To leave them out alone would be wrong: a record is the likelier to end early, the longer its topic stays silent, so
the ones left would be too lively. Each record that is known to the end is therefore weighed by one over the chance
that it was (inverse probability of censoring, the chance by Kaplan and Meier).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def censoring_weights(
    needed_s: NDArray[np.float64], watched_s: NDArray[np.float64], published: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """A weight for every record, 0 for those that ended too early.

    Args:
        needed_s: how long each had to be watched for its outcome to be known: until the publish, or the longest wait.
        watched_s: how long each was watched.
        published: whether a publish was seen; a record without one is known only if watched for the longest wait.

    Returns:
        The weights; their mean is about 1.
    """
    known = watched_s >= needed_s
    if not np.all(np.isfinite(needed_s[published])):
        raise ValueError("a publish at no finite time; only records without one may be endless")
    count = len(needed_s)
    if bool(known.all()) or count == 0:
        return known.astype(np.float64)
    # Kaplan–Meier for the time of censoring: at each time some record was cut, the share of those still running not
    # cut.
    cut_times, cut = np.unique(watched_s[~known], return_counts=True)
    running_until = np.sort(np.where(known, needed_s, watched_s))
    at_risk = count - np.searchsorted(running_until, cut_times, side="left")
    survival = np.concatenate([[1.0], np.cumprod(1.0 - cut / at_risk)])
    uncut = survival[np.searchsorted(cut_times, needed_s, side="left")]
    weights = np.zeros(count, dtype=np.float64)
    reachable = known & (uncut > 0.0)
    weights[reachable] = 1.0 / uncut[reachable]
    return weights
