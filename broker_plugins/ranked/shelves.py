"""The `$where` subscriptions of one inner filter: few of them in a list, many in a ranked index.

Who holds several equal shared subscriptions is one holder here, since they stand and fall together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker_plugins.ranked.accuracy import NOTHING_DECLARED
from broker_plugins.ranked.conditions import Conditions, box_of
from spatial_index import BadAttribute, RankedBoxes

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from broker_plugins.engine.subscription import Subscription
    from broker_plugins.ranked.accuracy import TopicRule

FEW: Final = 128
"""Up to so many holders are asked one by one: an index of its own costs a filter half a megabyte."""


STEP: Final = 16
"""Holders put into an index before others have a turn."""


class Holder:
    """One subscription, or the equal ones of a shared group."""

    __slots__ = ("accuracy", "conditions", "members", "order", "rest", "rule", "subscription")

    def __init__(self, subscription: Subscription) -> None:
        assert subscription.smart is not None
        assert subscription.smart.where is not None
        self.subscription = subscription
        self.members: dict[Subscription, None] | None = None if subscription.share is None else {subscription: None}
        self.conditions = Conditions.of(subscription.smart.where)
        self.rest: dict[TopicRule, Conditions] | None = None
        """By index, conditions on attributes that it had no room for: these are asked one by one."""
        self.order = subscription.order
        """Its age; a shared group is as old as the member that founded it."""
        self.rule: TopicRule | None = None
        self.accuracy = 1.0
        """What it comes to under `rule`."""

    @property
    def subscriptions(self) -> list[Subscription]:
        """Those that stand here."""
        return [self.subscription] if self.members is None else list(self.members)


class Shelf:
    """The holders of one inner filter, and an index of them for each rule that ranks their topics.

    The index of the rule that most likely ranks them grows with them. Another one, for messages to a topic with another
    rule, is built a step at a time; meanwhile the first one finds who matches, and they are ranked one by one.

    Args:
        inner: the filter.
        rule: the rule that most likely ranks its topics.
    """

    __slots__ = ("_building", "_fresh", "_indexes", "_likely", "attributes", "holders", "inner", "teams", "version")

    def __init__(self, inner: str, rule: TopicRule = NOTHING_DECLARED) -> None:
        self.inner = inner
        self._likely = rule
        self.holders: dict[Holder, None] = {}
        self.teams: dict[tuple[str, str], Holder] = {}
        """Holders of shared subscriptions, by group and text."""
        self._fresh: list[Holder] = []
        """Holders that are not in the indexes yet."""
        self._indexes: dict[TopicRule, RankedBoxes[Holder]] = {}
        """Complete indexes; empty while there are few holders."""
        self._building: dict[TopicRule, RankedBoxes[Holder]] = {}
        self.attributes: dict[str, int] = {}
        """How many holders speak of each attribute."""
        self.version = 0
        """Changes when the set of attributes does; never goes back."""

    def add(self, holder: Holder) -> None:
        """Take a holder in; it is found once `settle` has been called."""
        self.holders[holder] = None
        self._fresh.append(holder)
        for test in holder.conditions.tests:
            count = self.attributes.get(test.attribute, 0)
            self.attributes[test.attribute] = count + 1
            self.version += not count

    def remove(self, holder: Holder) -> None:
        """Let a holder go."""
        self.settle()
        del self.holders[holder]
        for index in self._indexes.values():
            index.remove(holder)
        for index in self._building.values():
            if holder in index:
                index.remove(holder)
        for test in holder.conditions.tests:
            self.attributes[test.attribute] -= 1
            if not self.attributes[test.attribute]:
                del self.attributes[test.attribute]
                self.version += 1

    def settle(self) -> None:
        """Put new holders into the indexes, the oldest first: those restored after a restart come in any order."""
        if not self._fresh:
            return
        fresh, self._fresh = self._fresh, []
        for holder in fresh:
            holder.order = min(subscription.order for subscription in holder.subscriptions)
        fresh.sort(key=lambda holder: holder.order)
        if not self._indexes and len(self.holders) > FEW:
            self._indexes[self._likely] = RankedBoxes(self._likely.domains)
            fresh = sorted(self.holders, key=lambda holder: holder.order)
        for rule, index in self._indexes.items():
            for holder in fresh:
                _enter(index, rule, holder)

    def lacks(self, rule: TopicRule) -> bool:
        """Whether an index for a rule is missing, and nobody is building it."""
        return bool(self._indexes) and rule not in self._indexes and rule not in self._building

    def build(self, rule: TopicRule) -> Generator[None, None, None]:
        """Build the index for a rule, a step at a time."""
        index = self._building[rule] = RankedBoxes(rule.domains)
        done = 0
        while True:
            self.settle()
            # Who comes meanwhile is younger than all others and stands at the end; who leaves is not there any more.
            waiting = [holder for holder in self.holders if holder not in index]
            waiting.sort(key=lambda holder: holder.order)
            if not waiting:
                break
            for holder in waiting:
                if holder in self.holders:
                    _enter(index, rule, holder)
                done += 1
                if done % STEP == 0:
                    yield
        self._indexes[rule] = self._building.pop(rule)

    def matching(self, point: Mapping[str, float]) -> list[Holder]:
        """All holders whose conditions hold, in no order that matters."""
        self.settle()
        if not self._indexes:
            return [holder for holder in self.holders if holder.conditions.hold_at(point)]
        rule, index = next(iter(self._indexes.items()))
        found = index.containing(point)
        return [holder for holder in found if holder.rest is None or _rest_holds(holder, rule, point)]

    def ranked(self, rule: TopicRule, point: Mapping[str, float], most: int) -> Iterator[tuple[float, int, Holder]]:
        """Holders whose conditions hold, best first, as many as are asked for.

        Args:
            rule: what ranks the topic of the message.
            point: the numbers in its payload.
            most: about how many will be needed.
        """
        self.settle()
        index = self._indexes.get(rule)
        if index is None:
            found = [(accuracy_of(rule, holder), holder.order, holder) for holder in self.matching(point)]
            yield from sorted(found, key=_by_rank)
            return
        given = 0
        while True:
            best = index.top(point, most)
            for holder in best[given:] if given else best:
                if holder.rest is None or _rest_holds(holder, rule, point):
                    accuracy = holder.accuracy if holder.rule is rule else accuracy_of(rule, holder)
                    yield accuracy, holder.order, holder
            if len(best) < most:
                return
            given, most = most, most * 4


def accuracy_of(rule: TopicRule, holder: Holder) -> float:
    """How accurate a holder is under a rule, remembered for the last one asked."""
    if holder.rule is not rule:
        where = holder.subscription.smart.where  # type: ignore[union-attr]  # a holder's subscription has conditions
        assert where is not None
        holder.rule, holder.accuracy = rule, rule.accuracy(box_of(where))
    return holder.accuracy


def _enter(index: RankedBoxes[Holder], rule: TopicRule, holder: Holder) -> None:
    """Put a holder into an index, with the conditions that it has room for."""
    assert holder.subscription.smart is not None
    assert holder.subscription.smart.where is not None
    box = box_of(holder.subscription.smart.where)
    try:
        index.add(holder, box, holder.order)
    except BadAttribute:
        known = set(index.attributes)
        index.add(holder, {name: interval for name, interval in box.items() if name in known}, holder.order)
        rest = holder.conditions.beside(known)
        assert rest is not None
        holder.rest = {**(holder.rest or {}), rule: rest}


def _rest_holds(holder: Holder, rule: TopicRule, point: Mapping[str, float]) -> bool:
    assert holder.rest is not None
    rest = holder.rest.get(rule)
    return rest is None or rest.hold_at(point)


def _by_rank(ranked: tuple[float, int, Holder]) -> tuple[float, int]:
    return ranked[:2]
