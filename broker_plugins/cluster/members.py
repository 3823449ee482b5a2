"""Which other nodes there are, as far as their signs of life tell."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_plugins.cluster.wire import Hello

log = logging.getLogger(__name__)


class _Member:
    __slots__ = ("address", "asked", "digest", "draining", "gone", "heard", "incarnation", "repaired")

    def __init__(self) -> None:
        self.incarnation = 0
        self.digest = 0
        self.heard = 0.0
        self.repaired = 0.0
        self.asked = False
        self.gone = True
        self.address = ""
        self.draining = False


class Members:
    """The other nodes.

    Args:
        lease_s: silence after which a node is taken for gone.
        away_s: silence after which it is forgotten.
        clock: seconds that only grow.
    """

    def __init__(self, lease_s: float, away_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._lease_s = lease_s
        self._away_s = away_s
        self._clock = clock
        self._members: dict[str, _Member] = {}

    def heard(self, hello: Hello) -> bool:
        """A node is there; True if it was not a moment ago."""
        member = self._members.setdefault(hello.node, _Member())
        came = not self.is_alive(hello.node) or member.incarnation != hello.incarnation
        member.heard = self._clock()
        member.incarnation, member.digest = hello.incarnation, hello.digest
        member.gone = False
        member.address, member.draining = hello.address, hello.draining
        return came

    def expect(self, node: str) -> None:
        """A node is not there but may come back."""
        if node not in self._members:
            self._members[node] = member = _Member()
            member.heard = self._clock()

    def is_alive(self, node: str) -> bool:
        """Whether a node was heard of lately."""
        member = self._members.get(node)
        if member is None or member.gone:
            return False
        if self._clock() - member.heard > self._lease_s:
            member.gone = True
            log.warning("node %s has said nothing for %g s: it is taken for gone", node, self._lease_s)
        return not member.gone

    def alive(self) -> list[str]:
        """The nodes that are there."""
        return [node for node in self._members if self.is_alive(node)]

    def address(self, node: str) -> str:
        """Where clients reach a node, as `host:port`; nothing where that is not known."""
        member = self._members.get(node)
        return "" if member is None else member.address

    def is_draining(self, node: str) -> bool:
        """Whether a node is about to be stopped."""
        member = self._members.get(node)
        return member is not None and member.draining

    def takes_clients(self, node: str) -> bool:
        """Whether clients may be sent to a node: it is there, one can say where, and it is not about to go."""
        return self.is_alive(node) and bool(self.address(node)) and not self._members[node].draining

    def silent(self, seconds: float) -> list[str]:
        """The nodes that are expected back, or were not heard of for a while."""
        now = self._clock()
        return [node for node, member in self._members.items() if member.gone or now - member.heard > seconds]

    def known(self) -> list[str]:
        """The nodes that are there, or were and are expected back."""
        return list(self._members)

    def forgotten(self) -> list[str]:
        """The nodes that have been away for too long, once each."""
        now = self._clock()
        found = [node for node, member in self._members.items() if now - member.heard > self._away_s]
        for node in found:
            del self._members[node]
        return found

    def ask(self, node: str) -> bool:
        """Whether a node is to be asked now; not while an answer is awaited."""
        member = self._members.setdefault(node, _Member())
        if member.asked:
            return False
        member.asked = True
        return True

    def answered(self, node: str) -> None:
        """A node has answered, or will not."""
        if node in self._members:
            self._members[node].asked = False

    def differing(self, digest: int, pause_s: float) -> list[str]:
        """The nodes whose retained messages were others than ours for a while, each not too often."""
        now = self._clock()
        found = []
        for node in self.alive():
            member = self._members[node]
            if member.digest == digest:
                member.repaired = now
            elif now - member.repaired > pause_s:
                member.repaired = now
                found.append(node)
        return found
