"""What `LocusClient` puts on the wire, and what it does with what comes."""

from __future__ import annotations

import threading

import pytest

from broker_plugins.grammar import GrammarError
from clients import (
    Box,
    Cell,
    Circle,
    ClosedError,
    Detect,
    Fence,
    Interval,
    LocusClient,
    Message,
    Near,
    NoAnswerError,
    Position,
    PositionError,
    QueueFullError,
    SubscriptionRefusedError,
    plane,
)
from tests.brokers import locus
from tests.clients.scripted_broker import ScriptedBroker
from tests.mqtt_wire import Kind, wait_for


@pytest.fixture
def scripted():
    with ScriptedBroker() as broker:
        yield broker


@pytest.fixture
def client(scripted):
    with LocusClient(port=scripted.port, timeout_s=5) as client:
        yield client


def ignore(message: Message) -> None:
    pass


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "cars/#"),
        ({"area": Near(500)}, "$geo/near:500m/cars/#"),
        ({"area": Box(126.9, 37.4, 127.1, 37.6)}, "$geo/bbox:126.9,37.4,127.1,37.6/cars/#"),
        ({"area": Circle(126.97, 37.56, 1500)}, "$geo/circle:126.97,37.56,1500m/cars/#"),
        ({"area": Cell("wydm9")}, "$geo/cell:wydm9/cars/#"),
        ({"area": Fence("harbour"), "detect": Detect.ENTER}, "$geo/fence:harbour;detect=enter/cars/#"),
        ({"where": {"age": Interval(20, 25), "pay": Interval(low=300)}}, "$where/age=20..25,pay>=300/cars/#"),
        ({"where": {"speed": Interval(low=80, low_open=True)}}, "$where/speed>80/cars/#"),
        ({"share": "fleet"}, "$share/fleet/cars/#"),
        (
            {"share": "g", "area": Near(50), "where": {"v": Interval(1, 1)}, "qos": 2},
            "$share/g/$geo/near:50m/$where/v=1/cars/#",
        ),
    ],
)
def test_a_subscription_goes_out_as_its_filter_and_is_left_by_the_same(scripted, client, arguments, text):
    subscription = client.subscribe("cars/#", ignore, **arguments)
    assert scripted.subscribed == [text]
    assert scripted.all(Kind.SUBSCRIBE)[0].body[-1] == arguments.get("qos", 0)
    assert subscription.filter == text
    subscription.cancel()
    assert scripted.unsubscribed == [text]
    assert not subscription.active


def test_a_filter_that_says_it_all_goes_out_as_it_is_written(scripted, client):
    text = "$where/b>1,a>1/$geo/near:1.50km/cars/#"
    client.subscribe(text, ignore).cancel()
    assert scripted.subscribed == scripted.unsubscribed == [text]


@pytest.mark.parametrize(
    ("arguments", "topic"),
    [
        ({}, "alerts/fire"),
        ({"at": (126.97, 37.56)}, "alerts/fire/@at:126.97,37.56"),
        ({"at": Position(1e-7, -0.0)}, "alerts/fire/@at:0.0000001,0"),
        ({"area": (126.5, 37, 127.5, 38)}, "alerts/fire/@area:126.5,37,127.5,38"),
        (
            {"at": (1, 2), "top": 3, "ttl_s": 0.25, "reply": "me/receipts", "qos": 1, "retain": True},
            "alerts/fire/@at:1,2;top:3;ttl:250ms;reply:me/receipts",
        ),
    ],
)
def test_a_publication_goes_out_with_its_clauses(scripted, client, arguments, topic):
    client.publish("alerts/fire", {"size": 3}, **arguments)
    scripted.wait_for(Kind.PUBLISH)
    (sent,) = scripted.all(Kind.PUBLISH)
    assert (sent.topic, sent.payload) == (topic, b'{"size":3}')
    assert (sent.qos, sent.retain) == (arguments.get("qos", 0), arguments.get("retain", False))


def test_what_cannot_be_said_never_leaves(scripted, client):
    with pytest.raises(GrammarError, match=r"latitude 126\.97"):
        client.publish("a", at=(37.56, 126.97))
    with pytest.raises(GrammarError, match="top"):
        client.publish("a", top=0)
    with pytest.raises(GrammarError, match="wildcard"):
        client.publish("a/#")
    with pytest.raises(GrammarError, match="said twice"):
        client.subscribe("$geo/near:5m/a", ignore, area=Near(500))
    with pytest.raises(ValueError, match="needs an area"):
        client.subscribe("a", ignore, detect=Detect.EXIT)
    with pytest.raises(ValueError, match="QoS 3"):
        client.publish("a", qos=3)
    with pytest.raises(ValueError, match="QoS 7"):
        client.subscribe("a", ignore, qos=7)
    assert not scripted.published
    assert not scripted.subscribed


def test_a_refused_filter_is_named(scripted, client):
    scripted.refuse.add("$geo/near:500m/cars/#")
    with pytest.raises(SubscriptionRefusedError, match=r"'\$geo/near:500m/cars/#' \(SUBACK 0x80\).*'cars/#'") as caught:
        client.subscribe("cars/#", ignore, area=Near(500))
    assert caught.value.inner == "cars/#"
    scripted.refuse.clear()
    client.subscribe("cars/#", ignore, area=Near(500))


def test_messages_go_to_the_callbacks_they_are_for(scripted, client):
    fast, slow, other = [], [], []
    client.subscribe("cars/#", fast.append, where={"speed": Interval(low=80)})
    client.subscribe("cars/#", slow.append, where={"speed": Interval(high=20)})
    client.subscribe("boats", other.append)
    scripted.send("cars/1", b'{"speed": 90}')
    scripted.send("cars/2", b'{"speed": 10}')
    scripted.send("boats", b"3")
    scripted.send("planes", b"")
    wait_for(lambda: bool(other) and client.unrouted == 1, "all messages")
    assert [(message.topic, message.text) for message in fast + slow + other] == [
        ("cars/1", '{"speed": 90}'),
        ("cars/2", '{"speed": 10}'),
        ("boats", "3"),
    ]


def test_two_subscriptions_to_one_filter_share_it(scripted, client):
    first, second = [], []
    one = client.subscribe("a", first.append)
    two = client.subscribe("a", second.append)
    scripted.send("a", b"1")
    wait_for(lambda: len(first) == len(second) == 1, "both callbacks")
    one.cancel()
    assert scripted.unsubscribed == []
    scripted.send("a", b"2")
    wait_for(lambda: len(second) == 2, "the second callback")
    assert len(first) == 1
    two.cancel()
    assert scripted.unsubscribed == ["a"]


def test_a_subscription_moves_without_a_gap(scripted, client):
    got = []
    subscription = client.subscribe("cars", got.append, area=Circle(1, 2, 50), where={"v": Interval(low=0)})
    subscription.move(Circle(3, 4, 50))
    assert subscription.filter == "$geo/circle:3,4,50m/$where/v>=0/cars"
    order = [heard.kind for heard in scripted.heard if heard.kind in (Kind.SUBSCRIBE, Kind.UNSUBSCRIBE)]
    assert order == [Kind.SUBSCRIBE, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE]
    assert scripted.unsubscribed == ["$geo/circle:1,2,50m/$where/v>=0/cars"]
    scripted.send("cars", b'{"v": 1}')
    wait_for(lambda: len(got) == 1, "the message")


def test_a_subscription_that_may_not_move_stays(scripted, client):
    got = []
    subscription = client.subscribe("cars", got.append, area=Cell("wydm9"))
    scripted.refuse.add("$geo/cell:wydm8/cars")
    with pytest.raises(SubscriptionRefusedError, match="wydm8"):
        subscription.move(Cell("wydm8"))
    assert subscription.active
    assert subscription.filter == "$geo/cell:wydm9/cars"
    scripted.send("cars")
    wait_for(lambda: len(got) == 1, "the message")
    subscription.cancel()
    with pytest.raises(ClosedError, match="wydm9"):
        subscription.move(Cell("wydm7"))


def test_a_subscription_cancelled_while_it_moves_is_left_for_good(scripted, client):
    subscription = client.subscribe("cars", ignore, area=Cell("wydm9"))
    scripted.silent = {Kind.SUBSCRIBE}
    moving = threading.Thread(target=lambda: subscription.move(Cell("wydm8")))
    moving.start()
    scripted.wait_for(Kind.SUBSCRIBE, 2)
    cancelling = threading.Thread(target=subscription.cancel)
    cancelling.start()
    scripted.answer_last(Kind.SUBSCRIBE)
    moving.join(10)
    cancelling.join(10)
    assert sorted(scripted.unsubscribed) == ["$geo/cell:wydm8/cars", "$geo/cell:wydm9/cars"]


def test_a_function_for_places_that_fails_costs_one_message(scripted, caplog):
    def fail(message: Message) -> Position:
        raise RuntimeError("lost the map")

    got = []
    with LocusClient(port=scripted.port, place_of=fail) as client:
        client.subscribe("a", ignore, area=Near(5))
        client.subscribe("a", ignore, area=Near(6))
        client.subscribe("b", got.append)
        scripted.send("a")
        scripted.send("b")
        wait_for(lambda: bool(got), "the other message")
    assert "lost the map" in caplog.text


def test_positions_are_told_when_they_are_news(scripted, client):
    assert client.update_position(126.97, 37.56, least_distance_m=50)
    assert not client.update_position(126.97, 37.5601, least_distance_m=50)  # 11 m
    assert not client.update_position(126.97, 37.5604, least_distance_m=50)  # 44 m from the one told
    assert client.update_position(126.97, 37.5605, least_distance_m=50)
    with pytest.raises(PositionError):
        client.update_position(37.56, 126.97)
    scripted.wait_for(Kind.PUBLISH, 2)
    assert scripted.published == [
        ("locus/me/position", b'{"lon":126.97,"lat":37.56}'),
        ("locus/me/position", b'{"lon":126.97,"lat":37.5605}'),
    ]
    assert client.position == Position(126.97, 37.5605)


def test_a_plane_has_its_own_positions(scripted):
    with LocusClient(port=scripted.port, space=plane(0, 0, 60, 25)) as client:
        assert client.update_position(12, 8)
        assert not client.update_position(12, 9, least_distance_m=2)
        with pytest.raises(PositionError, match="y 26"):
            client.update_position(12, 26)
        client.subscribe("robots/#", ignore, area=Circle(50, 20, 2.5))
    assert scripted.subscribed == ["$geo/circle:50,20,2.5m/robots/#"]


def test_a_callback_may_use_the_client(scripted, client):
    done = threading.Event()

    def answer(message: Message) -> None:
        client.subscribe("more", ignore)
        client.publish("answer", message.payload, qos=1)
        done.set()

    client.subscribe("question", answer)
    scripted.send("question", b"42")
    assert done.wait(10)
    assert scripted.published == [("answer", b"42")]


def test_a_callback_that_fails_is_logged_and_the_next_message_comes(scripted, client, caplog):
    got = []

    def fail_first(message: Message) -> None:
        got.append(message)
        if len(got) == 1:
            raise RuntimeError("not today")

    client.subscribe("a", fail_first)
    scripted.send("a", b"1")
    scripted.send("a", b"2")
    wait_for(lambda: len(got) == 2, "both messages")
    assert "not today" in caplog.text


def test_slow_callbacks_lose_the_oldest_and_it_is_counted(scripted):
    entered, leave = threading.Event(), threading.Event()
    got = []

    def dawdle(message: Message) -> None:
        got.append(message.text)
        entered.set()
        leave.wait(10)

    with LocusClient(port=scripted.port, queue_size=3) as client:
        client.subscribe("a", dawdle)
        scripted.send("a", b"0")
        assert entered.wait(10)
        for number in range(1, 8):
            scripted.send("a", b"%d" % number)
        wait_for(lambda: client.dropped == 4, "four messages to be dropped")
        leave.set()
    assert got == ["0", "5", "6", "7"]


def test_no_callback_begins_after_cancel(scripted, client):
    entered, leave = threading.Event(), threading.Event()
    got = []

    def dawdle(message: Message) -> None:
        got.append(message.text)
        entered.set()
        leave.wait(10)

    after = []
    subscription = client.subscribe("a", dawdle)
    client.subscribe("b", after.append)
    scripted.send("a", b"1")
    scripted.send("a", b"2")
    scripted.send("b")
    assert entered.wait(10)
    subscription.cancel()
    leave.set()
    wait_for(lambda: bool(after), "what came behind")
    assert got == ["1"]


def test_nothing_waits_for_ever(scripted, client):
    scripted.silent = {Kind.SUBSCRIBE, Kind.UNSUBSCRIBE, Kind.PUBLISH}
    with pytest.raises(NoAnswerError, match="'quiet'"):
        client.subscribe("quiet", ignore, timeout_s=0.1)
    with pytest.raises(NoAnswerError, match="acknowledge the message to 'a'"):
        client.publish("a", qos=1, timeout_s=0.1)
    client.close(timeout_s=0.5)


def test_too_many_unacknowledged_are_refused(scripted):
    scripted.silent = {Kind.PUBLISH}
    client = LocusClient(port=scripted.port, queue_size=5).connect()
    for _ in range(5):
        client.publish("a", qos=1, wait=False)
    with pytest.raises(QueueFullError, match="'a'"):
        client.publish("a", qos=1, wait=False)
    client.close(timeout_s=0.2)


def test_close_waits_for_acknowledgements(scripted):
    with LocusClient(port=scripted.port) as client:
        for number in range(100):
            client.publish("a", number, qos=1, wait=False)
    assert [payload for _, payload in scripted.published] == [b"%d" % number for number in range(100)]
    scripted.wait_for(Kind.DISCONNECT)
    assert scripted.heard[-1].kind is Kind.DISCONNECT


def test_a_closed_client_says_so(scripted, client):
    subscription = client.subscribe("a", ignore)
    client.close()
    client.close()
    assert not client.connected
    assert not subscription.active
    for use in (lambda: client.publish("a"), lambda: client.subscribe("b", ignore), client.connect):
        with pytest.raises(ClosedError):
            use()


def test_a_callback_may_close_the_client(scripted):
    client = LocusClient(port=scripted.port).connect()
    closed = threading.Event()

    def finish(message: Message) -> None:
        client.close()
        closed.set()

    client.subscribe("a", finish)
    scripted.send("a")
    assert closed.wait(10)


def test_threads_may_share_a_client():
    with locus() as broker, LocusClient(port=broker.port) as client:
        got: list[str] = []
        client.subscribe("a/#", lambda message: got.append(message.text), qos=1)

        def work(thread: int) -> None:
            for number in range(20):
                extra = client.subscribe(f"b/{thread}/{number}", ignore)
                client.publish(f"a/{thread}", f"{thread}.{number}", qos=1)
                extra.cancel()

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        wait_for(lambda: len(got) == 100, "all messages")
        assert sorted(got) == sorted(f"{thread}.{number}" for thread in range(5) for number in range(20))
