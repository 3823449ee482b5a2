"""The retained plugin: a subscriber waits for its retained message where something newer is about to come."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from broker_plugins.engine import Message, Plugin
from broker_plugins.engine.access import Action
from broker_plugins.engine.work import drive
from broker_plugins.retained.decisions import Decision, OpenDecisions
from broker_plugins.retained.explain import REQUESTS, explanation
from broker_plugins.retained.options import RetainedCounters, RetainedOptions
from broker_plugins.retained.rules import rule_for, rule_of
from broker_plugins.retained.topics import Topics
from rl_policy import DebtBook, Presence, features_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping

    from amqtt.broker import BrokerContext

    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.session import Session
    from broker_plugins.engine.subscription import Subscription
    from broker_plugins.retained.rules import Rule
    from broker_plugins.retained.topics import Topic
    from rl_policy import Debt, DecisionRecord

LEAD_S: Final = 0.02
"""How long before the longest wait is over a message is sent: an event loop wakes up late, never early."""
RETRY_S: Final = 0.5
"""How long a message that is due waits for room in its client's queue before it is tried again."""


class RetainedPlugin(Plugin):
    """Holds retained messages back for topics that opted in, for as long as a policy says and no longer."""

    Config = RetainedOptions

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self.options: RetainedOptions = self.config
        self.counters = RetainedCounters()
        self.rules = tuple(rule_of(text, rule or {}, self.options.policy_file) for text, rule in self._configured())
        self.book = DebtBook(self.options.max_debts, self.options.max_debts_per_client)
        self.topics = Topics(self.options.max_topics)
        self.open_decisions = OpenDecisions(self.options.max_open_decisions)
        self._restored: set[Subscription] = set()
        """Subscriptions from before a restart: what they are owed is due at once."""
        self._paying: dict[str, dict[str, Debt]] = {}
        """By topic and client, debts that are due and not yet sent: their access is being asked for."""
        self._arrivals = 0
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_s = float("inf")
        self._poll: asyncio.TimerHandle | None = None
        self._stopped = False

    def _configured(self) -> Iterable[tuple[str, dict[str, Any]]]:
        return self.options.topics.items()

    @property
    def decisions(self) -> list[Callable[[DecisionRecord], None]]:
        """Who is told of every decision when its outcome is known: append a function to listen."""
        return self.open_decisions.listeners

    def start(self, engine: Engine) -> None:
        """Read the policy files, and remember which subscriptions are from before."""
        self._engine = engine
        self._now = engine.loop.time
        self._recovering = True
        engine.loop.call_soon(self._recovered)
        self._sources = [rule.source for rule in self.rules if rule.source is not None]
        if self._sources:
            self._look()
            self._look_later()

    def _recovered(self) -> None:
        self._recovering = False

    def stop(self) -> None:
        """Close what is open: nobody will know how it would have ended."""
        self._stopped = True
        for timer in (self._timer, self._poll):
            if timer is not None:
                timer.cancel()
        for topic in self.topics:
            self.open_decisions.forgotten(topic, self._now())

    # Policy files.

    def _look(self) -> None:
        for source in self._sources:
            source.look()

    def _look_later(self) -> None:
        def looked(_: asyncio.Future[None]) -> None:
            self.counters.policies_loaded = sum(source.loaded for source in self._sources)
            self.counters.policies_refused = sum(source.refused for source in self._sources)
            if not self._stopped:
                self._poll = self._engine.loop.call_later(self.options.policy_poll_s, self._look_later)

        self._engine.loop.run_in_executor(None, self._look).add_done_callback(looked)

    # Deciding.

    def concerns(self, topic: str) -> bool:
        """Topics that opted in, and requests to explain one."""
        return rule_for(self.rules, topic) is not None or topic.startswith(REQUESTS)

    def on_retained(self, subscription: Subscription, message: Message) -> bool | None:
        """Hold a message back if its topic opted in and the policy says so."""
        rule = rule_for(self.rules, message.topic)
        if rule is None or subscription in self._restored:
            return None
        now, topic = self._now(), self.topics.get(message.topic)
        decision = self._decide(rule, message.topic, topic, now)
        client = subscription.session.client_id
        before = self.book.find(client, message.topic)
        known = before is not None and subscription.text in before.filters
        promise = self.book.subscribed(
            now,
            client,
            subscription.text,
            message.topic,
            qos=subscription.qos,
            retained_qos=message.qos,
            wait_s=min(decision.wait_s, max(rule.cost.d_max_s - LEAD_S, rule.cost.d_max_s / 2)),
        )
        if promise.settled is not None:
            self._release(promise.settled)
        if promise.overflowed:
            self.counters.overflowed += 1
            decision.wait_s, decision.reason = 0.0, f"{decision.reason}, but no room to wait"
        if topic is not None:
            topic.decisions.append(decision)
            self.open_decisions.open(decision, topic, rule.cost.d_max_s)
        if not promise.send_now:
            self.counters.deferred += 1
            if not known:
                self._engine.feeds.hold(subscription, message.topic)
        self._arm()
        return not promise.send_now

    def _decide(self, rule: Rule, name: str, topic: Topic | None, now_s: float) -> Decision:
        at = time.time()
        gaps = None if topic is None else topic.gaps
        hour = int(at // 3600) % 24  # of UTC: a broker has no other time of day that never jumps
        features = features_of(gaps, now_s, rule.cost, hour=hour, presence=self._presence(topic), prior=rule.prior)
        policy = rule.policy
        choice = policy.choose(features, rule.cost)
        self.counters.decisions += 1
        return Decision(name, rule.text, at, now_s, features, choice.wait_s, choice.reason, policy.version)

    def _presence(self, topic: Topic | None) -> Presence:
        """What is known of the client that published last."""
        if topic is None or topic.publisher is None:
            return Presence.UNKNOWN
        client, arrival = topic.publisher
        session = self._engine.sessions.get(client)
        if session is None or session.connection is None:
            return Presence.AWAY
        return Presence.STEADY if _arrival_of(session) == arrival else Presence.BACK

    # Messages.

    def on_publish(self, message: Message) -> bool | None:
        """Answer requests to explain a topic."""
        if not message.topic.startswith(REQUESTS):
            return None
        reply = None if message.clauses is None else message.clauses.reply
        if message.sender is not None and reply is not None:
            drive(self._engine.loop, self._explain(message.sender, message.topic.removeprefix(REQUESTS), reply))
        return False

    def _explain(self, session: Session, name: str, reply: str) -> Generator[Awaitable[Any] | None, Any, None]:
        """Whoever may receive a topic may know of it; where the answer goes, they must be allowed to publish."""
        for action in (Action.SUBSCRIBE, Action.RECEIVE):
            allowed = self._engine.may(session, name, action)
            if not isinstance(allowed, bool):
                allowed = yield allowed
            if not allowed:
                return
        answer = explanation(
            name,
            retained=name in self._engine.retained,
            rule=rule_for(self.rules, name),
            topic=self.topics.get(name),
            waiting=len(self.book.debtors(name)),
            now_s=self._now(),
        )
        self.counters.explained += 1
        self._engine.loop.call_soon(self._engine.publish_as, session, Message(reply, answer, 1, sender=session))

    def on_deliver(self, message: Message, receivers: Collection[Session]) -> None:
        """A live message is about to overtake what its receivers wait for: that goes first."""
        if message.retain:
            return
        name, sessions = message.topic, self._engine.sessions
        for client in self.book.debtors(name):
            session = sessions.get(client)
            debt = self.book.find(client, name)
            if session in receivers and debt is not None and self._pay(debt):
                self.book.before_live(name, (client,))
                self._release(debt)
                self.counters.sent_before_live += 1
        for client, debt in list(self._paying.get(name, {}).items()):
            if sessions.get(client) in receivers and self._pay(debt):
                self._paid(debt)
                self._release(debt)
                self.counters.sent_before_live += 1

    def on_enqueued(self, message: Message, reached: Mapping[Session, int]) -> None:
        """Learn from a retained message, and settle what it pays."""
        name = message.topic
        if not message.retain:
            self._overtaken(name, reached)
            return
        entry, now = self._engine.retained.get(name), self._now()
        if not message.payload:
            if entry is None:
                self._cleared(name, now)
            return
        if entry is None or entry.message.sequence < message.sequence:
            return  # it was not kept
        publisher = None if message.sender is None else (message.sender.client_id, _arrival_of(message.sender))
        topic, evicted = self.topics.published(name, now, publisher)
        self.open_decisions.published(topic, now)
        if evicted is not None:
            self.counters.topics_evicted += 1
            self.open_decisions.forgotten(evicted, now)
        waiting = self.book.debtors(name)
        if waiting:
            sessions = self._engine.sessions
            queued_for = {client for client in waiting if sessions.get(client) in reached}
            for debt in self.book.published_retained(name, message.qos, queued_for):
                self._release(debt)
                self.counters.saved += 1

    def _overtaken(self, name: str, reached: Collection[Session]) -> None:
        """There was no room for the retained message, but for the live one: older must not come after newer."""
        sessions = self._engine.sessions
        overtaken = {client for client in self.book.debtors(name) if sessions.get(client) in reached}
        late = [debt for client, debt in self._paying.get(name, {}).items() if sessions.get(client) in reached]
        for debt in (*self.book.before_live(name, overtaken), *late):
            self._paid(debt)
            self._release(debt)
            self.counters.overtaken += 1

    def _cleared(self, name: str, now_s: float) -> None:
        self._cancel(self.book.cleared(name))
        topic = self.topics.cleared(name)
        if topic is not None:
            self.open_decisions.forgotten(topic, now_s)

    # Paying.

    def _pay(self, debt: Debt) -> bool:
        """Send what is owed, now; False if there is no room for it."""
        session = self._engine.sessions.get(debt.session)
        entry = self._engine.retained.get(debt.topic)
        if session is None or entry is None:
            return True
        for text in sorted(debt.filters, key=debt.filters.__getitem__, reverse=True):
            subscription = session.subscriptions.get(text)
            # Other plugins are asked again: the message they let pass may have been replaced by one they do not.
            if subscription is not None and not self._engine.feeds.kept(subscription, entry.message, besides=self):
                return self._engine.send_retained(subscription, debt.topic)
        return True

    def _pay_due(self) -> Generator[Awaitable[Any] | None, Any, None]:
        due = self.book.due(self._now())
        for debt in due:
            self._paying.setdefault(debt.topic, {})[debt.session] = debt
        for debt in due:
            name, client = debt.topic, debt.session
            session = self._engine.sessions.get(client)
            allowed: Any = session is not None and self._engine.may_receive(session, name)
            if not isinstance(allowed, bool):
                allowed = yield allowed
            if not self._paid(debt):
                continue  # sent meanwhile, ahead of a live message
            if not allowed:
                self._cancel([debt])
            elif self._pay(debt):
                self._release(debt)
                self.counters.sent_at_deadline += 1
            else:
                self._owe_again(debt)
            yield None

    def _paid(self, debt: Debt) -> bool:
        """A debt that was due is dealt with; False if it was so already."""
        clients = self._paying.get(debt.topic)
        if clients is None or clients.get(debt.session) is not debt:
            return False
        del clients[debt.session]
        if not clients:
            del self._paying[debt.topic]
        return True

    def _owe_again(self, debt: Debt) -> None:
        """A debt that could not be paid stays one."""
        self.counters.put_off += 1
        for text, qos in debt.filters.items():
            promise = self.book.subscribed(
                self._now(), debt.session, text, debt.topic, qos=qos, retained_qos=debt.retained_qos, wait_s=RETRY_S
            )
            if promise.overflowed:
                self._release(debt)
                self.counters.overflowed += 1
                return
        session = self._engine.sessions.get(debt.session)
        if session is None or session.connection is None:
            self._left(debt.session, persistent=session is not None and session.persistent)

    def _release(self, debt: Debt) -> None:
        """A debt is over: its subscriptions need not be sent it after a crash."""
        session = self._engine.sessions.get(debt.session)
        if session is not None:
            for text in debt.filters:
                subscription = session.subscriptions.get(text)
                if subscription is not None:
                    self._engine.feeds.release(subscription, debt.topic)

    def _cancel(self, debts: Iterable[Debt]) -> None:
        for debt in debts:
            self._release(debt)
            self.counters.cancelled += 1

    # Time.

    def _arm(self) -> None:
        """Wake up when the next debt is due or the next decision ends."""
        times = (self.open_decisions.next_end_s(), self.book.next_deadline_s())
        wake = min((when for when in times if when is not None), default=float("inf"))
        if wake < self._wakes_s and not self._stopped:
            if self._timer is not None:
                self._timer.cancel()
            self._wakes_s = wake
            self._timer = self._engine.loop.call_at(wake, self._wake)

    def _wake(self) -> None:
        self._timer, self._wakes_s = None, float("inf")
        self.open_decisions.due(self._now())
        self.counters.censored = self.open_decisions.censored
        drive(self._engine.loop, self._pay_due(), self._arm)

    # Clients.

    def on_connected(self, session: Session) -> None:
        """A client is here, perhaps again: what it waits for runs on, and what is due goes out in a moment."""
        if not self.rules:
            return
        self._arrivals += 1
        if session.attributes is None:
            session.attributes = {}
        session.attributes["arrival"] = self._arrivals
        self.book.connected(session.client_id, session_present=True)
        self._arm()

    def on_disconnected(self, session: Session, reason: str) -> None:  # noqa: ARG002  the hook's signature
        """A client has left; a persistent session keeps what it is owed."""
        self._left(session.client_id, persistent=session.persistent)

    def _left(self, client: str, persistent: bool) -> None:
        self._cancel(self.book.disconnected(client, persistent=persistent))

    def on_session_ended(self, session: Session) -> None:
        """A session is gone, and so is what it was owed."""
        self._cancel(self.book.connected(session.client_id, session_present=False))

    def on_subscribed(self, subscription: Subscription) -> None:
        """Remember which subscriptions are from before a restart."""
        if self._recovering and self.rules:
            self._restored.add(subscription)

    def on_unsubscribed(self, subscription: Subscription) -> None:
        """Nothing is owed to a filter that is given up; one that is made anew keeps its deadlines."""
        self._restored.discard(subscription)
        session = subscription.session
        if not session.ended and session.subscriptions.get(subscription.text) is not subscription:
            self._cancel(self.book.unsubscribed(session.client_id, subscription.text))


def _arrival_of(session: Session) -> int:
    """Which of all connections a session has now, or had last."""
    arrival: int = (session.attributes or {}).get("arrival", 0)
    return arrival
