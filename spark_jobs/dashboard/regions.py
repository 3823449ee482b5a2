"""What a cluster tells of itself on `$SYS`: which node owns which block of the map, and how its causal groups do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from spark_jobs.dashboard.payloads import number, read_object

REGIONS_TOPIC: Final = "$SYS/broker/locus/cluster/blocks"
CAUSAL_TOPIC: Final = "$SYS/broker/locus/causal"
MOST_REGIONS: Final = 600
MOST_GROUPS: Final = 50


@dataclass(frozen=True, slots=True)
class Region:
    """A block of the map: whose it is, and how many messages and positions a second happen in it."""

    name: str
    sides: tuple[float, float, float, float]
    owner: str
    load: float


@dataclass(frozen=True, slots=True)
class Regions:
    """The blocks of a cluster, the busiest first.

    Args:
        blocks: the blocks; where there are very many, the busiest.
        count: how many there are.
        capacity: the load above which one is split.
        facts: what else was told, such as `moves`, `splits`, `merges`, `sent` and `spared`.
    """

    blocks: tuple[Region, ...] = ()
    count: int = 0
    capacity: float = 0.0
    facts: dict[str, float] | None = None

    def by_owner(self) -> dict[str, tuple[int, float]]:
        """Blocks and load of each node."""
        found: dict[str, tuple[int, float]] = {}
        for block in self.blocks:
            blocks, load = found.get(block.owner, (0, 0.0))
            found[block.owner] = (blocks + 1, load + block.load)
        return found


@dataclass(frozen=True, slots=True)
class CausalGroup:
    """A causal group as one node sees it."""

    filter: str
    lifetime_ms: float
    waiting: int
    """Messages that wait for others to come first, now."""
    delivered: int
    waited: int
    """Messages that had to wait, so far."""
    waited_ms: float
    dropped: int

    @property
    def mean_wait_ms(self) -> float | None:
        """How long those that had to wait did so; None where none had to."""
        return self.waited_ms / self.waited if self.waited else None


def read_regions(payload: bytes) -> Regions | None:
    """The blocks as a node publishes them; None for anything else."""
    content = read_object(payload)
    listed = content.get("blocks") if content is not None else None
    if content is None or not isinstance(listed, list):
        return None
    blocks = tuple(found for each in listed[:MOST_REGIONS] if (found := _region(each)) is not None)
    facts = {name: fact for name, value in content.items() if (fact := number(value)) is not None}
    return Regions(blocks, int(facts.get("count", len(blocks))), facts.get("capacity", 0.0), facts)


def _region(value: Any) -> Region | None:
    if not isinstance(value, dict):
        return None
    box, owner = value.get("box"), value.get("owner")
    sides = [number(side) for side in box] if isinstance(box, list) and len(box) == 4 else []
    known = [side for side in sides if side is not None]
    if len(known) != 4 or not isinstance(owner, str):
        return None
    west, south, east, north = known
    return Region(
        str(value.get("id", ""))[:60], (west, south, east, north), owner[:64], number(value.get("load")) or 0.0
    )


def read_causal(payload: bytes) -> list[CausalGroup]:
    """The causal groups as a node publishes them; none where it is anything else."""
    content = read_object(payload)
    listed = content.get("groups") if content is not None else None
    found = []
    for each in listed[:MOST_GROUPS] if isinstance(listed, list) else []:
        if isinstance(each, dict) and isinstance(each.get("filter"), str):
            dropped = each.get("dropped")
            reasons = dropped.values() if isinstance(dropped, dict) else []
            found.append(
                CausalGroup(
                    each["filter"][:200],
                    number(each.get("lifetime_ms")) or 0.0,
                    int(number(each.get("waiting")) or 0),
                    int(number(each.get("delivered")) or 0),
                    int(number(each.get("waited")) or 0),
                    number(each.get("waited_ms")) or 0.0,
                    int(sum(number(count) or 0 for count in reasons)),
                )
            )
    return found
