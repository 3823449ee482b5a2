"""Nodes that have heard the same hold the same, in whatever order they heard it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.cluster.retained_sync import BUCKETS, RetainedLedger, bucket_of
from broker_plugins.cluster.wire import Stamp

events = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c/d", "e"]),
        st.builds(Stamp, st.integers(0, 5), st.sampled_from(["x", "y"])),
        st.sampled_from([b"", b"one", b"two"]),
    ),
    max_size=25,
)


@given(events, st.randoms(use_true_random=False))
def test_any_order_gives_the_same(said: list[tuple[str, Stamp, bytes]], random) -> None:
    one, two = RetainedLedger(100), RetainedLedger(100)
    values: dict[str, bytes] = {}
    for topic, stamp, payload in said:
        if one.accept(topic, stamp, payload):
            values.update({topic: payload})
    shuffled = said * 2
    random.shuffle(shuffled)
    others: dict[str, bytes] = {}
    for topic, stamp, payload in shuffled:
        wanted = two.wants(topic, stamp, payload)
        assert two.accept(topic, stamp, payload) is wanted
        if wanted:
            others[topic] = payload
    assert values == others
    assert one.digests == two.digests
    assert one.digest == two.digest
    for bucket in range(BUCKETS):
        assert one.topics(bucket, "") == sorted(topic for topic in values if bucket_of(topic) == bucket)


@given(events, events)
def test_digests_differ_where_nodes_differ(one_heard: list, two_heard: list) -> None:
    one, two = RetainedLedger(100), RetainedLedger(100)
    held: list[dict[str, tuple[Stamp, bytes]]] = [{}, {}]
    for ledger, heard, values in ((one, one_heard, held[0]), (two, two_heard, held[1])):
        for topic, stamp, payload in heard:
            if ledger.accept(topic, stamp, payload):
                values[topic] = (stamp, payload)
    assert (one.digest == two.digest) == (held[0] == held[1])


def test_removals_are_bounded() -> None:
    ledger = RetainedLedger(3)
    for number in range(10):
        ledger.accept(f"t/{number}", Stamp(number, "x"), b"v")
        ledger.accept(f"t/{number}", Stamp(number + 1, "x"), b"")
    assert ledger.removals_forgotten == 7
    assert ledger.stamp("t/0") is None
    assert ledger.stamp("t/9") == Stamp(10, "x")
    assert sum(len(ledger.topics(bucket, "")) for bucket in range(BUCKETS)) == 3
