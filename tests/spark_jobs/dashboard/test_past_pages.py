"""The views that a lake fills, in a browser: history, decisions, the gate, handovers; no Spark is needed for it."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.buckets import NO_BUCKET, bucket_of
from spark_jobs.ledger import Ledger, write_ledger
from tests.broker_plugins.smart import plugins
from tests.brokers import locus
from tests.mqtt_wire import connect, publish
from tests.spark_jobs.dashboard.browser import Visit, chromium, dashboard, needs_chromium

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs_chromium, pytest.mark.xdist_group("browser"), pytest.mark.timeout(600)]


def write_lake(root: Path) -> None:
    """Ten minutes of traffic, and decisions of two policies."""
    now_s = int(time.time())
    rows: list[dict[str, Any]] = []
    for second in range(now_s - 600, now_s):
        at = datetime.fromtimestamp(second, UTC)
        base = {"second": at, "node": "n1", "incarnation": 1, "scope": "node", "key": ""}
        rows.append({**base, "metric": "publishes", "bucket": NO_BUCKET, "value": 40.0})
        rows.append({**base, "metric": "latency", "bucket": bucket_of(2_000.0), "value": 40.0})
    schema = [("second", pa.timestamp("us", tz="UTC")), ("node", pa.string()), ("incarnation", pa.int64())]
    schema += [("scope", pa.string()), ("key", pa.string()), ("metric", pa.string())]
    schema += [("bucket", pa.int32()), ("value", pa.float64())]
    _write(root / "metrics" / "cube" / "1-1.parquet", pa.Table.from_pylist(rows, pa.schema(schema)))
    decisions = [
        {
            "at": datetime.fromtimestamp(now_s - 500 + number, UTC),
            "topic": f"city/sensors/t{number % 9}/temperature",
            "wait_s": float(number % 3),
            "residual_s": 0.5,
            "policy_version": "renewal" if number < 50 else "abc123def456",
            "bytes": 100,
            "saved": number % 3 > 0,
            "commit": 1,
        }
        for number in range(100)
    ]
    _write(root / "tables" / "retained_decisions" / "1-1" / "part.parquet", pa.Table.from_pylist(decisions))
    moved = {"client": "city-subscriber-r7", "from_node": "n1", "to_node": "n2", "commit": 1}
    at = datetime.fromtimestamp(now_s - 30, UTC)
    _write(root / "tables" / "handovers" / "1-1" / "part.parquet", pa.Table.from_pylist([{"at": at, **moved}]))
    verdict = {"passed": False, "version": None, "trained_at": "2026-05-04T09:00:00+00:00"}
    found = {**verdict, "differences": {"overall": [0.02, 0.01, 0.03, 12]}, "reasons": ["overall is worse by 0.02"]}
    (root / "training").mkdir()
    (root / "training" / "retained.policy.verdict.json").write_text(json.dumps(found))
    write_ledger(root / "ledger.json", Ledger(commit=1))


def _write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def test_the_past_is_shown_from_the_lake(tmp_path: Path) -> None:
    write_lake(tmp_path / "lake")
    with (
        locus(plugins=plugins()) as broker,
        dashboard(tmp_path, broker.port, "--lake", str(tmp_path / "lake")) as address,
        chromium() as browser,
    ):
        visit = Visit(browser, address, 1440, 900)
        page = visit.go("/traffic")
        rates = page.locator("figure", has_text="published").first
        for span in ("Hour", "Day"):
            page.get_by_role("button", name=span).click()
            visit.wait(lambda: "40 /s" in rates.inner_text(), f"the {span}")
        page.get_by_role("button", name="Week").click()
        visit.wait(lambda: "in windows of 1800 s" in page.locator("#content").inner_text(), "what it is made from")
        quantiles = page.locator("figure", has_text="p99").first
        visit.wait(lambda: "1.97 ms" in quantiles.inner_text(), "the latencies")
        visit.shoot("traffic-past")
        page.get_by_role("button", name="Live").click()
        visit.wait(lambda: "own counters" in page.locator("section", has_text="Messages a second").inner_text(), "live")

        visit.go("/retained")
        visit.wait(lambda: visit.text("decisions") == "100", "decisions")
        for said in ("not passed", "overall is worse by 0.02", "abc123def456", "6.6 kB", "66 % of sending always"):
            visit.wait(lambda said=said: said in page.locator("#content").inner_text(), said)
        visit.shoot("retained-past")

        visit.go("/cluster")
        visit.wait(lambda: "city-subscriber-r7: n1 → n2" in page.locator("#content").inner_text(), "the handover")
        visit.check()
        visit.close()


def test_what_strangers_publish_is_shown_as_text(tmp_path: Path) -> None:
    evil = "<img src=x onerror=\"document.title='evil'\">"
    window = json.dumps({"from": "2026-05-04T09:00:00Z", "seconds": 10, "publishes_per_s": 1}).encode()
    with (
        locus(plugins=plugins()) as broker,
        dashboard(tmp_path, broker.port) as address,
        chromium() as browser,
        connect(broker.port, "stranger") as stranger,
    ):
        visit = Visit(browser, address, 1440, 900)
        page = visit.go("/")

        def alerted() -> bool:
            alert = json.dumps({"text": evil, "lon": 1, "lat": 1}).encode()
            stranger.send(publish("city/alerts/fire", alert))
            return evil in page.locator("section", has_text="Alerts").inner_text()

        visit.wait(alerted, "the text")
        ring = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
        stranger.send(publish(f"locus/fence/{evil.replace('/', '')}", json.dumps(ring).encode(), retain=True))
        visit.wait(lambda: "onerror" in page.locator("[data-fence]").first.inner_text(), "the fence")
        visit.go("/traffic")

        def listed() -> bool:
            stranger.send(publish(f"locus/metrics/n1/10s/prefix/{evil}", window))
            return "onerror" in page.locator("#content").inner_text()

        visit.wait(listed, "the prefix")
        assert page.locator("#content img").count() == 0
        assert page.title() == "Traffic · Locus"
        visit.check()
        visit.close()
