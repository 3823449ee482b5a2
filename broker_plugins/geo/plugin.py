"""The geo plugin: `$geo/<area>/<filter>` subscriptions, for messages that happen somewhere and clients that move."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from broker_plugins.engine import Plugin, Refused
from broker_plugins.engine.topics import is_exact, matches
from broker_plugins.engine.tree import FilterTree
from broker_plugins.geo.blocks import BlockTeller
from broker_plugins.geo.detection import transitions
from broker_plugins.geo.fences import FENCE_TOPICS, BadFenceError, read_fence
from broker_plugins.geo.options import GeoCounters, GeoOptions
from broker_plugins.geo.spots import Group, Spot, Watch
from broker_plugins.geo.tracks import Tracks
from broker_plugins.geo.zones import circle_shape, fixed_shape, index_space
from broker_plugins.grammar import Detect, Fence, Near
from broker_plugins.places import PlaceFinder, PlaceRule, payloads_of
from broker_plugins.ranked.conditions import Conditions
from broker_plugins.telemetry.recorder import records_of
from spatial_index import SpatialIndexError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from amqtt.broker import BrokerContext

    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.hooks import Selection
    from broker_plugins.engine.message import Message
    from broker_plugins.engine.session import Session
    from broker_plugins.engine.subscription import Subscription
    from broker_plugins.grammar import Area
    from broker_plugins.places import Place
    from spatial_index.shapes import Polygon, Shape

log = logging.getLogger(__name__)

POSITION_TOPIC: Final = "locus/me/position"


class Plan:
    """What there is to do for the messages of one topic."""

    __slots__ = ("fence", "groups", "moves_sender", "position", "rule")

    def __init__(self, topic: str, groups: tuple[Group, ...], rule: PlaceRule | None, tracked: bool) -> None:
        self.groups = groups
        self.rule = rule
        self.fence = topic.removeprefix(FENCE_TOPICS) if topic.startswith(FENCE_TOPICS) else None
        self.position = topic == POSITION_TOPIC
        self.moves_sender = tracked or self.position

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.groups or self.moves_sender or self.fence)


class FenceUse:
    """A fence that subscriptions name."""

    __slots__ = ("polygon", "spots")

    def __init__(self, polygon: Polygon | None) -> None:
        self.polygon = polygon
        self.spots: dict[Spot, None] = {}


class GeoPlugin(Plugin):
    """Serves `$geo` subscriptions."""

    Config = GeoOptions

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self.options: GeoOptions = self.config
        self.counters = GeoCounters()
        self._rules = [PlaceRule.of(text, rule) for text, rule in self.options.places.items()]
        self._groups: dict[str, Group] = {}
        self._tree: FilterTree[Group] = FilterTree()
        self._plans: dict[str, Plan] = {}
        self._fences: dict[str, FenceUse] = {}
        self._positions: dict[Session, tuple[float, float]] = {}
        """Where clients are; forgotten with their sessions, and when the broker ends."""
        self._near: dict[Session, dict[Spot, float]] = {}
        """The spots around each client, with their radius."""
        self.moved: list[Callable[[Session, float, float], None]] = []
        """Whom to tell where a client is, whenever it says so."""
        self._blocks: BlockTeller | None = None
        self._watching = 0
        self._tracks = Tracks(self.options.max_tracked_objects, self.options.max_tracked_insides)
        self.placed: Callable[[Spot], None] | None = None
        """Told of every spot that is somewhere else now, or nowhere: who must know where subscriptions listen."""
        self.missed: Callable[[Message], None] | None = None
        """Told of messages that happen where no `$geo` subscription to their topic listens."""
        self.sighted: Callable[[Message, Place], None] | None = None
        """Told of positions of clients and places of messages as they are found, some twice in a row."""

    def start(self, engine: Engine) -> None:
        """Settle the space, before any subscription is recovered."""
        engine.space = self.options.space()
        self._engine = engine
        self._space = index_space(engine.space)
        self._finder = PlaceFinder(engine.space, self._rules)
        self._records = records_of(engine.hooks.plugins, "positions")
        self.payloads = payloads_of(engine, self.counters, self.options.max_json_bytes)
        if self.options.blocks_interval_s:
            interval_s, most = self.options.blocks_interval_s, self.options.max_blocks
            self._blocks = BlockTeller(engine, self._groups.values, interval_s, most)

    def stop(self) -> None:
        """Tell no more of the index."""
        if self._blocks is not None:
            self._blocks.stop()

    def concerns(self, topic: str) -> bool:
        """Topics of `$geo` subscriptions, of positions and of fences."""
        return not self._plan(topic).idle

    def _plan(self, topic: str) -> Plan:
        plan = self._plans.get(topic)
        if plan is None:
            groups = tuple(dict.fromkeys(self._tree.match(topic)))
            tracked = any(matches(text, topic) for text in self.options.track)
            plan = Plan(topic, groups, self._finder.rule_for(topic), tracked)
            if len(self._plans) >= self.options.max_topics:
                self._plans.clear()
            self._plans[topic] = plan
        return plan

    def _forget_plans(self, inner: str) -> None:
        """The filters that are served have changed."""
        self.counters.filters = len(self._groups)
        if is_exact(inner):
            self._plans.pop(inner, None)
        else:
            self._plans.clear()
        self._engine.forget_routes(inner)

    # Subscriptions.

    def on_subscribe(self, session: Session, subscription: Subscription) -> bool | None:
        """Claim `$geo` subscriptions."""
        smart = subscription.smart
        if smart is None or smart.geo is None:
            return None
        group = self._groups.get(smart.inner)
        if group is None:
            group = Group(smart.inner, self._space)
        area = smart.geo.area
        spot = group.spot((session, area.radius) if isinstance(area, Near) else area)
        if spot.deserted:
            try:
                self._settle(session, spot, area)
            except SpatialIndexError as error:
                group.spots.pop(spot.key, None)
                raise Refused(f"no area of this space: {error}") from None
        conditions = None if smart.where is None else Conditions.of(smart.where)
        self._join(spot, subscription, conditions, smart.geo.detect)
        if smart.inner not in self._groups:
            self._groups[smart.inner] = group
            self._tree.add(smart.inner, group)
            self._forget_plans(smart.inner)
        return True

    def _settle(self, session: Session, spot: Spot, area: Area) -> None:
        """Put a new spot where its area is, as far as that is known."""
        shape: Shape | None = None
        if isinstance(area, Near):
            position = self._positions.get(session)
            if position is not None:
                shape = circle_shape(*position, area.radius, self._space)
            self._near.setdefault(session, {})[spot] = area.radius
        elif isinstance(area, Fence):
            use = self._fences.get(area.name)
            if use is None:
                use = self._fences[area.name] = FenceUse(self._fence(area.name))
                self.counters.fences += use.polygon is not None
            use.spots[spot] = None
            shape = use.polygon
        else:
            shape = fixed_shape(area, self._space)
        if shape is not None:
            self._put(spot, shape, moving=isinstance(area, Near))

    def _put(self, spot: Spot, shape: Shape | None, moving: bool = False) -> None:
        spot.group.place(spot, shape, moving=moving)
        if self.placed is not None:
            self.placed(spot)

    def spots(self) -> Iterator[Spot]:
        """Wherever subscriptions listen."""
        for group in self._groups.values():
            yield from group.spots.values()

    def _join(self, spot: Spot, subscription: Subscription, conditions: Conditions | None, detect: Detect) -> None:
        group = spot.group
        subscription.detail = spot
        self.counters.subscriptions += 1
        if detect is not Detect.INSIDE:
            old = subscription.session.subscriptions.get(subscription.text)
            watch = spot.watchers.get(old) if old is not None and spot.watchers else None
            spot.watchers = spot.watchers or {}
            # One that is made anew goes on where the old one was.
            since = self._engine.sequence if watch is None else watch.since
            spot.watchers[subscription] = Watch(detect, conditions, since)
            group.watched += 1
            group.crossing += detect is Detect.CROSS
            self._watching += 1
        elif conditions is not None:
            spot.picky = spot.picky or {}
            spot.picky[subscription] = conditions
            group.picky += 1
        else:
            spot.members[subscription] = None

    def on_unsubscribed(self, subscription: Subscription) -> None:
        """Forget a subscription, and with the last one its area and its filter."""
        if subscription.claimed_by is not self:
            return
        spot: Spot = subscription.detail
        group = spot.group
        self.counters.subscriptions -= 1
        if subscription in spot.members:
            del spot.members[subscription]
        elif spot.picky is not None and spot.picky.pop(subscription, None) is not None:
            group.picky -= 1
        elif spot.watchers is not None and (watch := spot.watchers.pop(subscription, None)) is not None:
            group.watched -= 1
            group.crossing -= watch.detect is Detect.CROSS
            self._watching -= 1
            if not self._watching:
                self._tracks.clear()
        if spot.deserted:
            self._abandon(spot, subscription)

    def _abandon(self, spot: Spot, subscription: Subscription) -> None:
        group = spot.group
        group.drop(spot)
        if self.placed is not None:
            self.placed(spot)
        assert subscription.smart is not None
        assert subscription.smart.geo is not None
        area = subscription.smart.geo.area
        if isinstance(area, Near):
            spots = self._near.get(subscription.session, {})
            spots.pop(spot, None)
            if not spots:
                self._near.pop(subscription.session, None)
        elif isinstance(area, Fence):
            use = self._fences[area.name]
            use.spots.pop(spot, None)
            if not use.spots:
                del self._fences[area.name]
                self.counters.fences -= use.polygon is not None
        if not group.spots:
            del self._groups[group.inner]
            self._tree.remove(group.inner, group)
            self._forget_plans(group.inner)

    def on_session_ended(self, session: Session) -> None:
        """Forget where a client was."""
        self._positions.pop(session, None)

    # Messages.

    def on_publish(self, message: Message) -> bool | None:
        """Take positions in, and refuse fences that are none."""
        plan = self._plan(message.topic)
        if plan.moves_sender and message.sender is not None:
            self._move(message.sender, message, plan)
        if plan.position:
            return False
        if plan.fence is not None and message.retain and message.payload:
            try:
                read_fence(message.payload, self._space, self.options.max_fence_points)
            except BadFenceError as error:
                self.counters.refused_fences += 1
                raise Refused(f"fence {plan.fence!r} stays as it is: {error}") from None
        return None

    def _place(self, message: Message, plan: Plan) -> Place | None:
        place = self._finder.said(message)
        if place is None:
            place = self._finder.in_content(self.payloads.read(message), plan.rule)
            self.counters.outside_space = self._finder.outside
        if place is not None and self.sighted is not None:
            self.sighted(message, place)
        return place

    def place_of(self, message: Message) -> Place | None:
        """Where a message happens, None if it does not say so."""
        return self._place(message, self._plan(message.topic))

    def _move(self, session: Session, message: Message, plan: Plan) -> None:
        place = self._place(message, plan)
        if place is None or len(place) != 2:
            self.counters.bad_positions += 1
            return
        self.counters.positions += 1
        if self._records is not None:
            self._records.note(session.client_id, *place)
        self.locate(session, *place)
        for hear in self.moved:
            hear(session, *place)

    def position_of(self, session: Session) -> tuple[float, float] | None:
        """Where a client last said it was."""
        return self._positions.get(session)

    def locate(self, session: Session, lon: float, lat: float) -> None:
        """Take a client to be somewhere: what is around it moves along."""
        place = (lon, lat)
        self._positions[session] = place
        for spot, radius in self._near.get(session, {}).items():
            self._put(spot, circle_shape(*place, radius, self._space), moving=True)

    def select(self, message: Message, selection: Selection) -> None:
        """Add the subscriptions that listen where a message happens."""
        plan = self._plan(message.topic)
        if plan.fence is not None and message.retain:
            self._follow(plan.fence)
        groups = plan.groups
        if not groups:
            return
        place = self._place(message, plan)
        if place is None:
            self.counters.without_place += 1
            return
        self.counters.messages += 1
        found: list[Subscription] = []
        watched: list[Spot] = []
        for group in groups:
            spots = group.find(place)
            found += [subscription for spot in spots for subscription in spot.members]
            if group.picky:
                found += self._satisfied(spots, message)
            if group.watched:
                watched += [spot for spot in spots if spot.watchers]
        if self._watching and any(group.watched for group in groups):
            found += self._detected(message, place, frozenset(watched), groups)
        if found:
            selection.add_all(found)
        elif self.missed is not None and not selection.receivers and not any(group.picky for group in groups):
            self.missed(message)

    def _satisfied(self, spots: list[Spot], message: Message) -> list[Subscription]:
        picky = [spot.picky for spot in spots if spot.picky]
        if not picky:
            return []
        content = self.payloads.read(message)
        return [subscription for some in picky for subscription, each in some.items() if each.hold(content)]

    def _detected(
        self, message: Message, place: Place, inside: frozenset[Spot], groups: tuple[Group, ...]
    ) -> list[Subscription]:
        found: list[Subscription] = []
        for subscription, watch in transitions(self._tracks.get(message.topic), place, inside, groups):
            if watch.conditions is None or watch.conditions.hold(self.payloads.read(message)):
                found.append(subscription)
        self._tracks.report(message.topic, place, inside, message.sequence)
        self.counters.tracked_objects = len(self._tracks)
        self.counters.forgotten_objects = self._tracks.forgotten
        return found

    def on_retained(self, subscription: Subscription, message: Message) -> bool | None:
        """Keep a retained message from a subscription that does not listen there, or listens for what moves."""
        if subscription.claimed_by is not self:
            return None
        spot: Spot = subscription.detail
        if subscription not in spot.members and (spot.picky is None or subscription not in spot.picky):
            return True
        place = self._place(message, self._plan(message.topic))
        if place is None or not spot.holds(place):
            return True
        conditions = None if spot.picky is None else spot.picky.get(subscription)
        return conditions is not None and not conditions.hold(self.payloads.read(message))

    # Fences.

    def _fence(self, name: str) -> Polygon | None:
        """The fence that is retained under a name."""
        entry = self._engine.retained.get(FENCE_TOPICS + name)
        if entry is None:
            return None
        try:
            return read_fence(entry.message.payload, self._space, self.options.max_fence_points)
        except BadFenceError as error:
            log.warning("fence %r is not used: %s", name, error)
            return None

    def _follow(self, name: str) -> None:
        """A fence was published, changed or deleted: its subscriptions listen where it is now."""
        use = self._fences.get(name)
        if use is None:
            return
        polygon = self._fence(name)
        self.counters.fences += (polygon is not None) - (use.polygon is not None)
        use.polygon = polygon
        for spot in use.spots:
            self._put(spot, polygon)
