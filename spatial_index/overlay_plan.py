"""One event's way through an overlay where its publisher knows everybody's box, and so plans the whole way.

Nobody is sent what it does not want, and nobody anything twice. A bounding box is served by the peer it elected if that
one wants the event, and otherwise by one of those below that do; a box in which nobody wants it is not entered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spatial_index.overlay_boxes import BoundingBox, Leaf, contains

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from spatial_index.overlay_boxes import Member


@dataclass(frozen=True, slots=True)
class Plan:
    """Who sends an event to whom.

    Attributes:
        hops: sender and receiver of every message, each sender after it has received it itself.
        receivers: every host that wants it, but for the one that publishes it.
    """

    hops: tuple[tuple[str, str], ...]
    receivers: tuple[str, ...]

    def below(self, host: str) -> list[tuple[str, list[object]]]:
        """To whom a host sends it, and to whom each of those does: the form in which a plan travels."""
        children: dict[str, list[str]] = {}
        for sender, receiver in self.hops:
            children.setdefault(sender, []).append(receiver)

        def nested(sender: str) -> list[tuple[str, list[object]]]:
            return [(receiver, list(nested(receiver))) for receiver in children.get(sender, ())]

        return nested(host)


class Planner:
    """Plans the way of one event.

    Args:
        point: the event.
        origin: the host that publishes it.
        host_of: where a peer lives: what is on one host is sent there once.
        may_relay: whether a host may be given more to send on.
        load: how much a host has carried so far, by which stand-ins are chosen.
        wanted: the hosts that want it, where the boxes alone do not tell; None if they do.
        straight: so many are sent it by one, without others in between.
    """

    def __init__(
        self,
        point: tuple[float | None, ...],
        origin: str,
        host_of: Callable[[str], str],
        may_relay: Callable[[str], bool],
        load: Callable[[str], float],
        wanted: Collection[str] | None,
        straight: int,
    ) -> None:
        self._straight = straight
        self._point, self._origin = point, origin
        self._host_of, self._may_relay, self._load = host_of, may_relay, load
        self._wanted = wanted
        self._below: dict[int, dict[str, None]] = {}
        self._reached = {origin}
        self._hops: list[tuple[str, str]] = []

    def run(self, roots: Iterable[BoundingBox]) -> Plan:
        """The plan for these trees: the publisher sends it to the first, from where it crosses to the others."""
        found = [root for root in roots if contains(root, self._point) and self._look(root)]
        sender = self._origin
        for root in found:
            holder = self._hand(root, sender)
            if sender == self._origin and holder is not None and self._may_relay(holder):
                sender = holder
        return Plan(tuple(self._hops), tuple(receiver for _, receiver in self._hops))

    def _look(self, member: Member) -> dict[str, None]:
        """The hosts below a member that want the event, remembered."""
        hosts: dict[str, None] = {}
        if isinstance(member, Leaf):
            hosts = dict.fromkeys(map(self._host_of, member.peers))
            if self._wanted is not None:
                hosts = {host: None for host in hosts if host in self._wanted}
        else:
            for below in member.members:
                if contains(below, self._point):
                    hosts |= self._look(below)
        self._below[id(member)] = hosts
        return hosts

    def _hand(self, member: Member, sender: str) -> str | None:
        """Let somebody who has the event give it to who serves a member; who that is, None if nobody need."""
        hosts = self._missing(member)
        if not hosts:
            return None
        holder = hosts[0] if len(hosts) == 1 else self._holder(member, hosts)
        if holder not in self._reached:
            self._send(sender, holder)
        self._serve(member, holder)
        return holder

    def _serve(self, member: Member, holder: str) -> None:
        """Let somebody who has the event see that all below a member get it."""
        hosts = self._missing(member)
        if isinstance(member, Leaf) or len(hosts) <= self._straight:
            for host in hosts:
                self._send(holder, host)
            return
        below = [each for each in member.members if self._missing(each)]
        if len(below) == 1:  # nothing branches here: another one in between would only be a detour
            self._serve(below[0], holder)
            return
        for each in below:
            self._hand(each, holder)

    def _missing(self, member: Member) -> list[str]:
        return [host for host in self._below.get(id(member), ()) if host not in self._reached]

    def _holder(self, member: Member, hosts: list[str]) -> str:
        """Who serves a member: its parent if that one has the event or wants it, else whoever has carried least.

        What nobody has room for, the publisher sends itself.
        """
        elected = self._host_of(member.parent)
        if (elected in self._reached or elected in hosts) and self._may_relay(elected):
            return elected
        with_room = [host for host in hosts if self._may_relay(host)]
        return min(with_room, key=self._load) if with_room else self._origin

    def _send(self, sender: str, receiver: str) -> None:
        self._hops.append((sender, receiver))
        self._reached.add(receiver)
