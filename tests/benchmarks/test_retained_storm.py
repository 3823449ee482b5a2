from __future__ import annotations

from benchmarks.retained_storm import BOUND_BYTES, Storm, fill, remark_of, resident, rows_of
from benchmarks.slow_reader import _packets, read_slowly
from tests.brokers import locus
from tests.mqtt_wire import publish


def test_the_slow_reader_reads_all_there_is_and_no_faster_than_told() -> None:
    with locus() as broker:
        fill(broker, 600)
        heard = read_slowly(broker.port, 600, 1e6)
        assert (heard["topics"], heard["messages"]) == (600, 600)
        assert heard["seconds"] >= 0.9 * (heard["bytes"] - 16_384) / 1e6
        assert resident(broker, "VmHWM") >= resident(broker, "VmRSS") > 1 << 20


def test_packets_are_cut_wherever_they_arrive() -> None:
    data = b"".join(publish(f"t/{number}", bytes(number)) for number in range(0, 400, 57))
    for cut in range(1, len(data), 7):
        pending = bytearray(data[:cut])
        found = _packets(pending)
        pending += data[cut:]
        assert [len(body) - 2 for _, body in found + _packets(pending)] == [
            len(f"t/{number}") + number for number in range(0, 400, 57)
        ]
        assert not pending


def storm(**changes: float) -> Storm:
    values = {
        "lost": 0,
        "doubled": 0,
        "seconds": 5.0,
        "idle_bytes": 100_000_000,
        "peak_bytes": 101_000_000,
        "p99_before_us": 200.0,
        "p99_us": 220.0,
    }
    return Storm(**{**values, **changes})  # type: ignore[arg-type]


def test_what_counts_as_reached() -> None:
    received, memory, *_ = rows_of({"locus": storm()}, 1_000)
    assert (received.reached, memory.reached) == (True, True)
    bad = storm(lost=1, peak_bytes=int(1.2 * 100_000_000 + BOUND_BYTES + 1))
    received, memory, *_ = rows_of({"locus": bad}, 1_000)
    assert (received.reached, memory.reached) == (False, False)
    both = {"locus": storm(), "mosquitto": storm(lost=900)}
    assert len(rows_of(both, 1_000)) == 6
    assert "mosquitto: 100 received, 900 lost" in remark_of(both, 1_000)
