"""The ranked plugin: `$where/<conditions>/<filter>` subscriptions, and messages for the k best receivers."""

from __future__ import annotations

import heapq
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from broker_plugins.engine import Message, Plugin
from broker_plugins.engine.topics import is_exact, matches
from broker_plugins.engine.tree import FilterTree
from broker_plugins.engine.work import drive
from broker_plugins.places import payloads_of
from broker_plugins.ranked.accuracy import TopicRule, rule_for
from broker_plugins.ranked.choice import Choice, Verdict
from broker_plugins.ranked.conditions import box_of, point_of
from broker_plugins.ranked.options import RankedCounters, RankedOptions
from broker_plugins.ranked.shelves import Holder, Shelf
from broker_plugins.telemetry.recorder import records_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from amqtt.broker import BrokerContext

    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.hooks import Selection
    from broker_plugins.engine.session import Session
    from broker_plugins.engine.subscription import Subscription
    from broker_plugins.ranked.choice import Ranked
    from broker_plugins.telemetry.recorder import Records


ALL_AT_ONCE: Final = 1_000
"""How many receivers are looked for at once where a receipt is wanted of all."""
MOST_VERDICTS: Final = 4_096
"""Decisions that are remembered; each is for a message that is published at once."""


class Plan:
    """What there is to do for the messages of one topic."""

    __slots__ = ("paths", "rule", "shelves", "version")

    def __init__(self, shelves: tuple[Shelf, ...], rule: TopicRule) -> None:
        self.shelves = shelves
        self.rule = rule
        self.paths: dict[str, tuple[str, ...]] = {}
        """The way to each number that subscriptions to the topic speak of."""
        self.version = -1


class RankedPlugin(Plugin):
    """Serves `$where` subscriptions, cuts to the k most accurate receivers and sends receipts."""

    Config = RankedOptions
    cuts = True
    reads_clauses = True

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self.options: RankedOptions = self.config
        self.counters = RankedCounters()
        self._rules = tuple(TopicRule.of(text, rule) for text, rule in self.options.topics.items())
        self._shelves: dict[str, Shelf] = {}
        self._tree: FilterTree[Shelf] = FilterTree()
        self._plans: dict[str, Plan] = {}
        self._wishes: dict[Session, list[int]] = {}
        """How many `$where` subscriptions of each QoS a session has."""
        self._verdicts: dict[Message, Verdict] = {}
        """Messages about to be delivered of which it is decided to whom."""

    def start(self, engine: Engine) -> None:
        """Find what is shared with other plugins."""
        self._engine = engine
        self._recovering = True
        engine.loop.call_soon(self._recovered)
        self._records = records_of(engine.hooks.plugins, "matches")
        self.payloads = payloads_of(engine, self.counters, self.options.max_json_bytes)

    def _recovered(self) -> None:
        """All sessions are restored: put their subscriptions in the order of their age before anybody publishes."""
        self._recovering = False
        for shelf in self._shelves.values():
            shelf.settle()

    def concerns(self, topic: str) -> bool:
        """Topics of `$where` subscriptions, and those whose messages a rule cuts."""
        plan = self._plan(topic)
        return bool(plan.shelves) or plan.rule.top is not None

    def _plan(self, topic: str) -> Plan:
        plan = self._plans.get(topic)
        if plan is None:
            plan = Plan(tuple(dict.fromkeys(self._tree.match(topic))), rule_for(self._rules, topic))
            if len(self._plans) >= self.options.max_topics:
                self._plans.clear()
            self._plans[topic] = plan
        return plan

    # Subscriptions.

    def on_subscribe(self, session: Session, subscription: Subscription) -> bool | None:
        """Claim `$where` subscriptions without `$geo`: the geo plugin looks at the conditions of those with one."""
        smart = subscription.smart
        if smart is None or smart.where is None or smart.geo is not None:
            return None
        self.counters.subscriptions += 1
        self._wishes.setdefault(session, [0, 0, 0])[subscription.qos] += 1
        old = session.subscriptions.get(subscription.text)
        if old is not None and old.claimed_by is self:
            holder: Holder = old.detail
            if holder.members is None:
                holder.subscription = subscription
            else:
                holder.members[subscription] = None
            subscription.detail = holder
            return True
        shelf = self._shelves.get(smart.inner)
        if shelf is None:
            # A filter is most likely ranked as a topic with the same levels would be.
            shelf = self._shelves[smart.inner] = Shelf(smart.inner, rule_for(self._rules, smart.inner))
            self._tree.add(smart.inner, shelf)
            self._forget_plans(smart.inner)
        if subscription.share is not None:
            team = shelf.teams.get((subscription.share, subscription.text))
            if team is not None and team.members is not None:
                team.members[subscription] = None
                subscription.detail = team
                return True
        holder = subscription.detail = Holder(subscription)
        shelf.add(holder)
        if not self._recovering:
            shelf.settle()
        if subscription.share is not None:
            shelf.teams[subscription.share, subscription.text] = holder
        return True

    def on_unsubscribed(self, subscription: Subscription) -> None:
        """Forget a subscription, and with the last one its filter."""
        if subscription.claimed_by is not self:
            return
        self.counters.subscriptions -= 1
        wishes = self._wishes[subscription.session]
        wishes[subscription.qos] -= 1
        if not any(wishes):
            del self._wishes[subscription.session]
        holder: Holder = subscription.detail
        if holder.members is not None:
            holder.members.pop(subscription, None)
            if holder.members:
                holder.subscription = next(iter(holder.members))
                return
        elif holder.subscription is not subscription:
            return  # it was made anew
        shelf = self._shelves[subscription.inner]
        shelf.remove(holder)
        if subscription.share is not None:
            del shelf.teams[subscription.share, subscription.text]
        if not shelf.holders:
            del self._shelves[shelf.inner]
            self._tree.remove(shelf.inner, shelf)
            self._forget_plans(shelf.inner)

    def _forget_plans(self, inner: str) -> None:
        """The filters that are served have changed."""
        self.counters.filters = len(self._shelves)
        if is_exact(inner):
            self._plans.pop(inner, None)
        else:
            self._plans.clear()
        self._engine.forget_routes(inner)

    # Messages.

    def wishes(self, message: Message) -> tuple[int | None, str | None]:
        """To how many of the best a message goes, None for all, and where a receipt of it is wanted."""
        top = self._plan(message.topic).rule.top
        clauses = message.clauses
        return (top, None) if clauses is None else (clauses.top or top, clauses.reply)

    def select(self, message: Message, selection: Selection) -> None:
        """Add the subscriptions whose conditions hold; where only the best are wanted, keep those."""
        plan = self._plan(message.topic)
        if self._verdicts:
            verdict = self._verdicts.pop(message, None)
            if verdict is not None:
                self._serve(message, selection, verdict)
                return
        clauses = message.clauses
        top = plan.rule.top
        reply: str | None = None
        if clauses is not None:
            top = clauses.top or top
            reply = clauses.reply
        if top is None and reply is None:
            point = self._point(message, plan) if plan.shelves else {}
            for shelf in plan.shelves:
                found = shelf.matching(point)
                if found:
                    selection.add_all([each for holder in found for each in holder.subscriptions])
            return
        choice = self.choose(message, selection, top)
        if top is not None:
            self.counters.cut += 1
        selection.receivers, selection.groups = choice.sessions, choice.teams
        if self._records is not None:
            self._record(self._records, message, choice, top)
        if reply is not None and message.sender is not None:
            self._send_receipt(message, message.sender, reply, *self._ranking(choice))

    def choose(self, message: Message, selection: Selection, most: int | None) -> Choice:
        """The best receivers of a message, of all that other plugins and the `$where` subscriptions add."""
        plan = self._plan(message.topic)
        point = self._point(message, plan) if plan.shelves else {}
        choice = Choice(self._engine, message, most)
        choice.fill(self._ranked(message, selection, plan, point, most or ALL_AT_ONCE))
        self.counters.passed_over += choice.passed_over
        if message.qos:
            self._raise_qos(message, selection, point, choice)
        return choice

    # What is decided together with other brokers.

    def decided(self, message: Message, verdict: Verdict) -> None:
        """Let a message that is published next go to whom it was decided."""
        if len(self._verdicts) >= MOST_VERDICTS:
            self._verdicts.pop(next(iter(self._verdicts)))  # it was never published
        self._verdicts[message] = verdict

    def _serve(self, message: Message, selection: Selection, verdict: Verdict) -> None:
        choice = verdict.choice or self.choose(message, selection, None)
        choice.cut(verdict.most, verdict.groups)
        if verdict.most is not None:
            self.counters.cut += 1
        selection.receivers, selection.groups = choice.sessions, choice.teams
        if self._records is not None:
            self._record(self._records, message, choice, verdict.most)
        reply = None if message.clauses is None else message.clauses.reply
        if reply is not None and message.sender is not None and verdict.ranking is not None:
            self._send_receipt(message, message.sender, reply, verdict.ranking, verdict.count)

    def _ranking(self, choice: Choice) -> tuple[list[tuple[float, str, str]], int]:
        return ranking_of(choice, self.options.max_receipt_receivers), len(choice.chosen)

    def _point(self, message: Message, plan: Plan) -> dict[str, float]:
        self.counters.messages += 1
        version = sum(shelf.version for shelf in plan.shelves)
        if plan.version != version:
            plan.version = version
            names = dict.fromkeys(name for shelf in plan.shelves for name in shelf.attributes)
            plan.paths = {name: tuple(name.split(".")) for name in names}
        return point_of(self.payloads.read(message), plan.paths)

    def _ranked(
        self, message: Message, selection: Selection, plan: Plan, point: Mapping[str, float], most: int
    ) -> Iterable[Ranked]:
        """Everybody who would get a message, best first, ties by age."""
        rule = plan.rule
        others = self._engine.routes.tree.match(message.topic)
        for added in selection.added:
            others.extend(added)
        for shelf in plan.shelves:
            if shelf.lacks(rule):
                drive(self._engine.loop, shelf.build(rule))
        streams: list[Iterable[Ranked]] = [shelf.ranked(rule, point, most) for shelf in plan.shelves]
        if others:
            streams.append(sorted(((self._accuracy(rule, each), each.order, each) for each in others), key=_by_rank))
        return streams[0] if len(streams) == 1 else heapq.merge(*streams, key=_by_rank)

    def _raise_qos(self, message: Message, selection: Selection, point: Mapping[str, float], choice: Choice) -> None:
        """Grant the chosen the highest QoS of all their filters that match, also of those less accurate."""
        for session, granted in choice.sessions.items():
            highest = max(granted, selection.receivers.get(session, 0))  # [MQTT-3.3.5-1]
            wishes = self._wishes.get(session)
            if wishes is not None and highest < message.qos and any(wishes[highest + 1 :]):
                for each in session.subscriptions.values():
                    if each.qos > highest and each.claimed_by is self and matches(each.inner, message.topic):
                        holder: Holder = each.detail
                        if holder.conditions.hold_at(point):
                            highest = each.qos
            choice.sessions[session] = highest

    @staticmethod
    def _accuracy(rule: TopicRule, subscription: Subscription) -> float:
        where = None if subscription.smart is None else subscription.smart.where
        return 1.0 if where is None else rule.accuracy(box_of(where))

    def on_retained(self, subscription: Subscription, message: Message) -> bool | None:
        """Keep a retained message from a subscription whose conditions it does not satisfy."""
        if subscription.claimed_by is not self:
            return None
        holder: Holder = subscription.detail
        return not holder.conditions.hold(self.payloads.read(message))

    @staticmethod
    def _record(records: Records, message: Message, choice: Choice, top: int | None) -> None:
        """Tell telemetry who was chosen: all of one message, or nobody."""
        weight = records.draw()
        if weight:
            at_us, count = time.time_ns() // 1_000, len(choice.chosen)
            for rank, (accuracy, each) in enumerate(choice.chosen, start=1):
                client = each.session.client_id
                records.add(
                    at_us, weight, message.sequence, message.topic, client, each.text, rank, accuracy, top, count
                )

    def _send_receipt(
        self, message: Message, sender: Session, reply: str, ranking: Sequence[tuple[float, str, str]], count: int
    ) -> None:
        """Tell a publisher how well its message matched, if it may publish where it wants to be told."""
        receivers: list[dict[str, Any]] = []
        for rank, (accuracy, client, group) in enumerate(ranking[: self.options.max_receipt_receivers], start=1):
            entry: dict[str, Any] = {"rank": rank, "accuracy": accuracy}
            if self.options.name_receivers:
                entry |= {"group": group} if group else {"client": client}
            receivers.append(entry)
        receipt = {"topic": message.topic, "count": count, "receivers": receivers}
        answer = Message(reply, msgspec.json.encode(receipt), message.qos, sender=sender)
        self.counters.receipts += 1
        # After the message itself, so that whoever waits for the receipt finds everything done.
        self._engine.loop.call_soon(self._engine.publish_as, sender, answer)


def ranking_of(choice: Choice, most: int) -> list[tuple[float, str, str]]:
    """The best of those chosen: accuracy, client and shared group."""
    return [(accuracy, each.session.client_id, each.share or "") for accuracy, each in choice.chosen[:most]]


def _by_rank(ranked: Ranked) -> tuple[float, int]:
    return ranked[0], ranked[1]
