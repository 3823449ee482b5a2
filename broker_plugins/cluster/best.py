"""The k best receivers of several nodes: who is served where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Candidate: TypeAlias = tuple[float, int, str, str]
"""Accuracy, age, client, and the whole text of a shared group, or nothing."""


@dataclass(slots=True)
class Decision:
    """Who is served on each node.

    Attributes:
        counts: on each node, how many of those it named, shared groups not counted.
        groups: on each node, the texts of the shared groups it serves.
        ranking: all of them, best first.
    """

    counts: dict[str, int]
    groups: dict[str, list[str]]
    ranking: list[Candidate] = field(default_factory=list)


def best_of(
    named: Mapping[str, Sequence[Candidate]], most: int | None, turn: Callable[[str, list[str]], str]
) -> Decision:
    """Choose the most accurate of all candidates, on a tie the oldest.

    A shared group that several nodes name is one receiver, as old as its oldest member, and one node serves it.

    Args:
        named: the candidates of each node, best first.
        most: how many are wanted; None for all.
        turn: chooses the node that serves a group, of those that named it.
    """
    everybody = sorted(
        ((accuracy, age, node, at, client, group))
        for node, candidates in named.items()
        for at, (accuracy, age, client, group) in enumerate(candidates)
    )
    members: dict[str, list[str]] = {}
    for _, _, node, _, _, group in everybody:
        if group and node not in members.setdefault(group, []):
            members[group].append(node)
    decision = Decision(dict.fromkeys(named, 0), {node: [] for node in named})
    served: set[str] = set()
    for accuracy, age, node, _, client, group in everybody:
        if most is not None and len(decision.ranking) >= most:
            break
        if not group:
            decision.counts[node] += 1
        elif group in served:
            continue
        else:
            served.add(group)
            decision.groups[turn(group, members[group])].append(group)
        decision.ranking.append((accuracy, age, client, group))
    return decision
