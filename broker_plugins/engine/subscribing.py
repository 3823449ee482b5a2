"""Subscriptions as they are made, replaced and ended."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from broker_plugins.engine.access import Action
from broker_plugins.engine.codec import SUBSCRIBE_FAILED
from broker_plugins.engine.hooks import Refused
from broker_plugins.engine.publishing import Publishing
from broker_plugins.engine.subscription import Subscription
from broker_plugins.engine.topics import filter_fault
from broker_plugins.grammar import GrammarError, is_smart, parse_filter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Iterator

    from broker_plugins.engine.session import Session

log = logging.getLogger(__name__)


class Subscribing(Publishing):
    """The part of the engine that subscribes."""

    def subscribe(
        self, session: Session, filters: list[tuple[str, int]], codes: bytearray
    ) -> Generator[Awaitable[Any] | None, Any, list[Subscription]]:
        """Make subscriptions in the order of a SUBSCRIBE [MQTT-3.8.4-4]; a code for each goes to `codes`."""
        made: list[Subscription] = []
        for text, qos in filters:
            try:
                subscription = self.read_filter(session, text, qos)
                allowed = self.may(session, subscription.inner, Action.SUBSCRIBE)
                if not isinstance(allowed, bool):
                    allowed = yield allowed
                if not allowed:
                    raise Refused("access control does not allow it")  # noqa: TRY301
                self.adopt(subscription)
            except Refused as refused:
                self.counters.refused_subscriptions += 1
                log.info("client %s: subscription %r refused: %s", session.client_id, text, refused)
                codes.append(SUBSCRIBE_FAILED)
            else:
                self.note_subscription(subscription, owed=1)
                codes.append(subscription.qos)
                made.append(subscription)
            yield None
        return made

    def grants(self, made: list[Subscription]) -> Iterator[Awaitable[Any]]:
        """What the SUBACK of these subscriptions waits for, one after the other."""
        for hook in self.hooks.granting if made else ():
            awaited = self._call(hook, made)
            if awaited is not None:
                yield awaited

    def subscribe_alone(
        self, session: Session, filters: list[tuple[str, int]], codes: bytearray
    ) -> Generator[Awaitable[Any] | None, Any, None]:
        """Make subscriptions for a client that did not ask, with their retained messages."""
        made = yield from self.subscribe(session, filters, codes)
        for subscription in made:
            self.feeds.begin(subscription)
        if session.feeds and session.out is not None:
            session.pump()

    def read_filter(self, session: Session, text: str, qos: int) -> Subscription:
        """A subscription as a client said it.

        Raises:
            Refused: it is malformed or one too many.
        """
        if (
            text not in session.subscriptions
            and len(session.subscriptions) >= self.options.max_subscriptions_per_client
        ):
            raise Refused(f"max_subscriptions_per_client ({self.options.max_subscriptions_per_client}) is reached")
        smart = None
        if is_smart(text):
            try:
                smart = parse_filter(text, self.space)
            except GrammarError as error:
                raise Refused(str(error)) from None
        else:
            fault = filter_fault(text)
            if fault is not None:
                raise Refused(fault)
        self.subscriptions_made += 1
        if self.ages is not None:
            self.subscriptions_made = max(self.subscriptions_made, self.ages())
        subscription = Subscription(session, text, text, qos, None, self.subscriptions_made)
        if smart is not None:
            subscription.smart, subscription.inner, subscription.share = smart, smart.inner, smart.share
        return subscription

    def adopt(self, subscription: Subscription) -> None:
        """Let a subscription take effect, in place of one with the same text [MQTT-3.8.4-3].

        Raises:
            Refused: a plugin does not want it.
        """
        session = subscription.session
        subscription.claimed_by = None
        for plugin, hook in self.hooks.subscribe:
            if self._call(hook, session, subscription):
                subscription.claimed_by = plugin
                break
        smart = subscription.smart
        if subscription.claimed_by is None and smart is not None and (smart.geo or smart.where):
            raise Refused(f"no plugin of this broker serves {'$geo' if smart.geo else '$where'}")
        old = session.subscriptions.get(subscription.text)
        if old is not None:
            subscription.order, subscription.held = old.order, old.held
            self._unindex(old)
            self.feeds.end(old)
        else:
            self.subscription_count += 1
        session.subscriptions[subscription.text] = subscription
        if subscription.claimed_by is None:
            self.routes.add(subscription)
        for hook in self.hooks.subscribed:
            self._call(hook, subscription)

    def note_subscription(self, subscription: Subscription, owed: int | str) -> None:
        """Keep a subscription of a persistent session, and what it is still owed of the retained messages.

        That is nothing, all of them (1), or those behind the topic that its feed has come to.
        """
        session = subscription.session
        if self.store is not None and session.persistent and not session.ended:
            row = (subscription.qos, subscription.order, owed)
            self.store.put("subscriptions", (session.client_id, subscription.text), row)

    def unsubscribe(self, session: Session, texts: list[str]) -> Generator[Awaitable[Any] | None, Any, None]:
        """End subscriptions, each named by its exact text [MQTT-3.10.4-1]."""
        for text in texts:
            subscription = session.subscriptions.pop(text, None)
            if subscription is not None:
                self.subscription_count -= 1
                self.feeds.end(subscription)
                self._unindex(subscription)
                self.feeds.forget(subscription)
                if self.store is not None and session.persistent:
                    self.store.delete("subscriptions", (session.client_id, text))
            yield None

    def _unindex(self, subscription: Subscription) -> None:
        if subscription.claimed_by is None:
            self.routes.remove(subscription)
        for hook in self.hooks.unsubscribed:
            self._call(hook, subscription)
