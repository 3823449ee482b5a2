"""The telemetry plugin: hears what the broker does, and records it for whoever wants to learn from it.

Publishes and deliveries are sampled in the engine (`EngineCore.sample`), so that what is not recorded costs nothing;
the share follows the traffic, and every record tells its weight. Nothing here waits for the disk: see `writer`.
"""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from broker_plugins.engine import Plugin
from broker_plugins.engine.errors import EngineError
from broker_plugins.geo import GeoPlugin
from broker_plugins.node_name import default_node
from broker_plugins.places import PayloadCounters, Payloads, PlaceFinder, PlaceRule
from broker_plugins.telemetry.keeping import Keeping
from broker_plugins.telemetry.metering import Metering
from broker_plugins.telemetry.options import TelemetryCounters, TelemetryOptions
from broker_plugins.telemetry.pace import PACE_S, in_share
from broker_plugins.telemetry.recorder import Recorder
from broker_plugins.telemetry.schema import TABLES, SchemaError, check_node
from broker_plugins.telemetry.spool import Spool, SpoolError
from broker_plugins.telemetry.writer import Writer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from amqtt.broker import BrokerContext

    from broker_plugins.engine import Message, Subscription
    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.session import Session
    from broker_plugins.places import Place
    from broker_plugins.telemetry.recorder import Records
    from rl_policy import DecisionRecord

NOWHERE = (None, None)
SLOW_ROLLS = 5
"""Rolls after which the others are written if they have few records: fewer, larger files."""


def _now_us() -> int:
    return time.time_ns() // 1_000


def _middle(place: Place) -> tuple[float, float]:
    if len(place) == 2:
        return place
    west, south, east, north = place
    return ((west + east) / 2 if west <= east else (west + east + 360) / 2 % 360, (south + north) / 2)


class TelemetryPlugin(Plugin):
    """Records sessions, subscriptions, messages and decisions as Parquet segments for Spark and others."""

    Config = TelemetryOptions
    samples = True

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self.options: TelemetryOptions = self.config
        self.counters = TelemetryCounters()
        shares = self.options.shares if self.options.enabled else dict.fromkeys(TABLES, 0.0)
        self.recorder = Recorder(self.options.max_buffered_records, shares)
        self.incarnation = time.time_ns()
        tables = self.recorder.tables
        self._sessions, self._subscriptions = tables["sessions"], tables["subscriptions"]
        self._publishes, self._deliveries, self._drops = tables["publishes"], tables["deliveries"], tables["drops"]
        self._decisions, self._totals = tables["retained_decisions"], tables["totals"]
        self._most = max(self._publishes.share, self._deliveries.share)
        self._metering = Metering(self.options, self._most)
        self._room = self.recorder.room
        self._keeping: Keeping | None = None
        self._writer: Writer | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._last_totals: list[int] = []
        self._totals_at = 0.0

    def start(self, engine: Engine) -> None:
        """Open the spool and begin to record.

        Raises:
            EngineError: pyarrow is not installed, or this broker has a name that no record can bear.
        """
        self._engine = engine
        if not self.options.enabled:
            return
        try:
            self.options.node = self._name_of(engine)
            spool = Spool(Path(self.options.spool_dir), self.options.node, self.incarnation)
        except (SpoolError, SchemaError) as error:
            raise EngineError(str(error)) from error
        self._keeping = Keeping(spool.directory, self.incarnation, self.options, self.counters)
        self._keeping.open()
        self._writer = Writer(engine.loop, spool, self.recorder, self.options, self.counters, self._keeping)
        self.recorder.room.wake = engine.to_tell
        rules: list[PlaceRule] = []
        for plugin in engine.hooks.plugins:
            if isinstance(plugin, GeoPlugin):
                rules = [PlaceRule.of(text, rule) for text, rule in plugin.options.places.items()]
            listeners = getattr(plugin, "decisions", None)  # the retained plugin tells what came of its decisions
            if isinstance(listeners, list) and self._decisions.share:
                listeners.append(self._decided)
        self._rules = bool(rules)
        self._finder: PlaceFinder | None = None
        self._place_rules = rules
        self._content = Payloads(PayloadCounters())  # of its own: it looks at a message after the plugins did
        self._metering.start(engine, self._writer)
        self._timers["pace"] = engine.loop.call_later(PACE_S, self._keep_pace)
        self._timers["roll"] = engine.loop.call_later(self.options.roll_s, self._roll)

    def _name_of(self, engine: Engine) -> str:
        """This broker's name in every record: the one the others of its cluster know it by."""
        names = {getattr(plugin, "node_name", None) for plugin in engine.hooks.plugins} - {None}
        name = next(iter(names), None)
        if name is not None and self.options.node not in ("", name):
            raise EngineError(
                f"node: {self.options.node!r} in telemetry is {name!r} in the cluster: leave it out in telemetry"
            )
        return check_node(name or self.options.node or default_node())

    def stop(self) -> None:
        """Write what there is; what still comes while connections are closed is written in `close`."""
        if self._writer is not None:
            for timer in self._timers.values():
                timer.cancel()
            self._write()

    async def close(self) -> None:
        """The broker has shut down: write the rest."""
        if self._writer is not None:
            self._write()
            await self._writer.close()
            self.tally()

    # The clock.

    def _keep_pace(self) -> None:
        self._timers["pace"] = self._engine.loop.call_later(PACE_S, self._keep_pace)
        self._metering.look()

    def _roll(self) -> None:
        self._timers["roll"] = self._engine.loop.call_later(self.options.roll_s, self._roll)
        now = time.monotonic()
        patience_s = (SLOW_ROLLS - 0.5) * self.options.roll_s
        due = self.recorder.due(now, patience_s)
        # That the broker lives is told by any record: while there are others, counters can wait.
        if self._totals.share and (not due or now - self._totals_at >= patience_s):
            self._record_totals(now - self._totals_at < patience_s)
            if len(self._totals):
                due.append(self._totals)
        self._hand_over(due)

    def _write(self) -> None:
        if self._totals.share:
            self._record_totals()
        self._hand_over()

    def _hand_over(self, due: Sequence[Records] | None = None) -> None:
        assert self._writer is not None
        self.on_leaving()
        self._writer.write(self.recorder.take(due))
        self.tally()

    def tally(self) -> None:
        """Bring the counters up to date."""
        self.counters.lost_records = self.recorder.room.lost
        self.counters.buffered_records = self.recorder.room.used

    def _record_totals(self, if_changed: bool = False) -> None:
        engine = self._engine
        names = [field.name for field in fields(engine.counters)]
        values = [getattr(engine.counters, name) for name in names]
        names.append("messages_received")
        values.append(engine.sequence)
        if if_changed and values == self._last_totals:
            return
        self._last_totals, self._totals_at = values, time.monotonic()
        now_us = _now_us()
        for name, value in zip(names, values, strict=True):
            self._totals.add(now_us, 1.0, name, value)

    # Sessions and subscriptions.

    def on_connected(self, session: Session) -> None:
        """A client came."""
        self._session("connected", session)

    def on_disconnected(self, session: Session, reason: str) -> None:
        """A client left."""
        self._session("disconnected", session, reason)

    def on_session_ended(self, session: Session) -> None:
        """A session is over."""
        self._session("ended", session)

    def _session(self, event: str, session: Session, reason: str | None = None) -> None:
        if self._sessions.share:
            peer = session.connection.peer if session.connection is not None else None
            address = None if peer is None else peer[0]
            self._sessions.note(event, session.client_id, session.clean, address, reason)

    def on_subscribed(self, subscription: Subscription) -> None:
        """A subscription was made."""
        self._subscription("subscribed", subscription)

    def on_unsubscribed(self, subscription: Subscription) -> None:
        """A subscription ended."""
        self._subscription("unsubscribed", subscription)

    def _subscription(self, event: str, subscription: Subscription) -> None:
        if self._subscriptions.share:
            smart = subscription.smart
            self._subscriptions.note(
                event,
                subscription.session.client_id,
                subscription.text,
                subscription.inner,
                subscription.qos,
                subscription.share,
                smart is not None and smart.geo is not None,
                smart is not None and smart.where is not None,
            )

    # Messages.

    def on_published(self, messages: Sequence[Message]) -> None:
        """Messages of the sample were taken."""
        self._begin(len(messages), 0)
        if self._publishes.share and messages:
            self._record_publishes(messages)

    def on_delivered(self, deliveries: Sequence[tuple[Session, Message, int]]) -> None:
        """Messages of the sample were handed over."""
        self._begin(0, len(deliveries))
        if self._deliveries.share and deliveries:
            self._record_deliveries(deliveries)

    def _begin(self, messages: int, deliveries: int) -> None:
        if self._metering.begin(messages, deliveries):
            self._room.woken = True  # nobody need wake us up: `on_leaving` follows

    def on_leaving(self) -> None:
        """Write down what clients may come to know."""
        if self._keeping is not None:
            self._keeping.keep(self._room)
            self._metering.end()

    def _recorded(self, count: int) -> None:
        self._metering.recorded(count, self._metering.messages)
        if max(len(self._publishes), len(self._deliveries)) >= self.options.roll_records:
            self._hand_over()

    def _record_publishes(self, messages: Sequence[Message]) -> None:
        part = self._publishes.share / self._most * self._metering.messages.thinned(len(messages))
        if part < 1.0:
            messages = [each for each in messages if each.retain or in_share(each.sequence, part)]
        first, fits = self._publishes.begin(len(messages))
        rows = []
        for number, message in enumerate(messages[:fits], first):
            payload, sender, weight = message.payload, message.sender, message.weight
            lon, lat = self._place(message)
            rows.append(
                (
                    number,
                    message.taken_ns // 1_000,
                    weight if message.retain else weight / part,
                    message.sequence,
                    message.topic,
                    None if sender is None else sender.client_id,
                    message.qos,
                    message.retain,
                    len(payload),
                    lon,
                    lat,
                )
            )
        self._publishes.extend(rows)
        self._recorded(len(messages))

    def _record_deliveries(self, deliveries: Sequence[tuple[Session, Message, int]]) -> None:
        part = self._deliveries.share / self._most * self._metering.messages.thinned(len(deliveries))
        if part < 1.0:
            deliveries = [each for each in deliveries if in_share(each[1].sequence, part)]
        now_ns = time.time_ns()
        now_us = now_ns // 1_000
        first, fits = self._deliveries.begin(len(deliveries))
        self._deliveries.extend(
            [
                (
                    number,
                    now_us,
                    message.weight / part,
                    message.sequence,
                    message.topic,
                    session.client_id,
                    qos,
                    len(message.payload),
                    False,
                    session.out is None,
                    (now_ns - message.taken_ns) // 1_000 if now_ns > message.taken_ns else 0,
                )
                for number, (session, message, qos) in enumerate(deliveries[:fits], first)
            ]
        )
        self._recorded(len(deliveries))

    def _place(self, message: Message) -> tuple[float, float] | tuple[None, None]:
        """Where a message happens, as `$geo` understands it."""
        worth_a_look = self.options.look_into_payloads and message.payload[:1] == b"{"
        if message.clauses is None and message.properties is None and not worth_a_look:
            return NOWHERE
        finder = self._finder
        if finder is None:  # made now: while plugins start, the space may not be known yet
            finder = self._finder = PlaceFinder(self._engine.space, self._place_rules)
        place = finder.said(message)
        if place is None and worth_a_look:
            rule = finder.rule_for(message.topic) if self._rules else None
            place = finder.in_content(self._content.read(message), rule)
        return NOWHERE if place is None else _middle(place)

    def on_retained_sent(self, subscription: Subscription, message: Message) -> None:
        """A retained message went to a new subscription."""
        records = self._deliveries
        weight = records.draw(self._metering.messages.share) if records.share else 0.0
        if weight:
            self._recorded(1)
            session = subscription.session
            records.add(
                _now_us(),
                weight,
                message.sequence,
                message.topic,
                session.client_id,
                min(subscription.qos, message.qos),
                len(message.payload),
                True,
                session.out is None,
                None,
            )
            if len(records) >= self.options.roll_records:
                self._hand_over()

    def on_dropped(self, drops: Sequence[tuple[Session | None, Message, str]]) -> None:
        """Messages did not reach somebody."""
        records = self._drops
        if not records.share:
            return
        at_us = _now_us()
        pace = self._metering.drops
        share = pace.share * pace.thinned(len(drops))
        for session, message, reason in drops:
            weight = records.draw(share)
            if weight:
                self._metering.recorded(1, pace)
                records.add(
                    at_us,
                    weight,
                    message.sequence or None,
                    message.topic,
                    None if session is None else session.client_id,
                    message.qos,
                    len(message.payload),
                    reason,
                )
        if len(records) >= self.options.roll_records:
            self._hand_over()

    # Retained messages that were decided on.

    def _decided(self, record: DecisionRecord) -> None:
        entry = self._engine.retained.get(record.topic)
        features = record.features
        self._decisions.note(
            record.topic,
            record.topic_class,
            int(record.at_s * 1e6),
            features.age_s,
            features.gaps,
            features.mean_gap_s,
            features.typical_gap_s,
            features.last_gap_s,
            features.variation,
            features.hour,
            int(features.presence),
            features.renewal_wait_s,
            features.recent_wait_s,
            record.wait_s,
            record.policy_version,
            record.propensity,
            record.residual_s,
            record.observed_s,
            None if entry is None else len(entry.message.payload),
            record.residual_s is not None and record.residual_s <= record.wait_s,
        )
