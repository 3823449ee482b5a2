"""One event's way through an overlay: up from its publisher to the root, and down to every member it concerns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spatial_index.overlay_boxes import Leaf, contains

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spatial_index.overlay_boxes import BoundingBox, Member


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of one event.

    Attributes:
        receivers: every peer whose box contains the event, each once.
        messages: how many times one peer sent the event to another.
        wasted: how many of those reached a peer that did not want it (or had it already).
        cost: R for each wasted message and F for each one sent, without the publisher's own first message.
    """

    receivers: tuple[str, ...]
    messages: int
    wasted: int
    cost: float


class Route:
    """Routes one event and adds up what each peer carries for it.

    A message names the hosts it came through, so that none of them is sent it again: forwarding to oneself is free.

    Args:
        point: the event.
        origin: the peer that publishes it, None for somebody outside.
        hosts: where each peer lives: who has an event on a host, has it for all there.
        wants: whether somebody on a host wants an event.
        relieve: called before a box's parent is given work, so that one who carries too much can be replaced.
        receive_cost: R.
        forward_cost: F.
    """

    def __init__(
        self,
        point: tuple[float | None, ...],
        origin: str | None,
        hosts: Mapping[str, str],
        wants: Callable[[str, tuple[float | None, ...]], bool],
        relieve: Callable[[Member], None],
        receive_cost: float,
        forward_cost: float,
    ) -> None:
        self._point, self._origin = point, origin
        self._hosts, self._wants, self._relieve = hosts, wants, relieve
        self._receive_cost, self._forward_cost = receive_cost, forward_cost
        self._reached: set[str] = set() if origin is None else {hosts[origin]}
        self.receivers: list[str] = []
        self.costs: dict[str, float] = {}
        self.messages = 0
        self.wasted = 0

    def run(self, start: Leaf | None, roots: list[BoundingBox]) -> None:
        """Climb from the publisher's leaf, if there is one, then cross to the roots the climb did not reach."""
        holder: str | None = None  # a publisher's own messages are not carried for others: nobody pays for them
        path: tuple[str, ...] = () if self._origin is None else (self._hosts[self._origin],)
        if start is not None:
            if contains(start, self._point):
                self._deliver(start, None, path)
            came: Member = start
            while came.above is not None:
                box = came.above
                holder, path = self._hand(box, holder, path)
                for member in box.members:
                    if member is not came and contains(member, self._point):
                        self._descend(member, holder, path)
                came = box
            roots = [root for root in roots if root is not came]
        for root in roots:
            if contains(root, self._point):
                self._descend(root, holder, path)

    def _descend(self, member: Member, sender: str | None, path: tuple[str, ...]) -> None:
        stack: list[tuple[Member, str | None, tuple[str, ...]]] = [(member, sender, path)]
        while stack:
            member, sender, path = stack.pop()
            if isinstance(member, Leaf):
                self._deliver(member, sender, path)
                continue
            sender, path = self._hand(member, sender, path)
            stack.extend((below, sender, path) for below in member.members if contains(below, self._point))

    def _deliver(self, leaf: Leaf, sender: str | None, path: tuple[str, ...]) -> None:
        self.receivers.extend(leaf.peers)
        if len(leaf.peers) > 1:
            sender, path = self._hand(leaf, sender, path)
        for peer in leaf.peers:
            self._send(sender, peer, path)

    def _hand(self, box: Member, sender: str | None, path: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """Give the event to whoever speaks for a box."""
        self._relieve(box)
        self._send(sender, box.parent, path)
        host = self._hosts[box.parent]
        return box.parent, (path if host in path else (*path, host))

    def _send(self, sender: str | None, receiver: str, path: tuple[str, ...]) -> None:
        host = self._hosts[receiver]
        if host in path:
            return
        self.messages += 1
        if sender is not None:
            payer = self._hosts[sender]
            self.costs[payer] = self.costs.get(payer, 0.0) + self._forward_cost
        if host in self._reached or not self._wants(host, self._point):
            self.wasted += 1
            self.costs[host] = self.costs.get(host, 0.0) + self._receive_cost
        self._reached.add(host)
