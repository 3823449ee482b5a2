"""A learned policy that follows its file: a file that can be used replaces the policy, any other leaves it as it is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rl_policy import PolicyFileError, read_policy

if TYPE_CHECKING:
    from pathlib import Path

    from rl_policy import CostModel, LearnedPolicy

log = logging.getLogger(__name__)


class PolicySource:
    """One policy file, for one cost model.

    Args:
        path: the file; it may not be there yet.
        cost: what the policy must have been learned for.
    """

    __slots__ = ("_seen", "cost", "loaded", "path", "policy", "refused")

    def __init__(self, path: Path, cost: CostModel) -> None:
        self.path = path
        self.cost = cost
        self.policy: LearnedPolicy | None = None
        self.loaded = 0
        """How many files were taken into use."""
        self.refused = 0
        """How many could not be used."""
        self._seen: tuple[int, int, int] | str | None = "not looked yet"

    def look(self) -> None:
        """Take the file into use if it has changed and can be used; say so once if it cannot.

        Reads the disk: to be called from a thread where an event loop runs. Whoever decides meanwhile sees the old
        policy or the new one.
        """
        try:
            found = self.path.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            seen = None
        if seen == self._seen:
            return
        self._seen = seen
        if seen is None and self.policy is None:
            log.info("no policy at %s yet; the renewal rule decides until there is one", self.path)
            return
        try:
            policy = read_policy(self.path).policy
        except PolicyFileError as error:
            self._refuse(str(error))
            return
        if policy.cost != self.cost:
            self._refuse(
                f"{self.path} was learned for kappa {policy.cost.kappa:g} and d_max_s {policy.cost.d_max_s:g}, not for "
                f"{self.cost.kappa:g} and {self.cost.d_max_s:g}; train it for these"
            )
            return
        self.policy = policy
        self.loaded += 1
        log.info("policy %s from %s decides from now on", policy.version, self.path)

    def _refuse(self, reason: str) -> None:
        self.refused += 1
        stays = "the renewal rule decides" if self.policy is None else f"policy {self.policy.version} stays in use"
        log.warning("policy file refused, %s: %s", stays, reason)
