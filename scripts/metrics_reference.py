"""Writes docs/reference/metrics.md from a broker that runs: what is on the page is what Prometheus gets."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import yaml

from broker_plugins.engine.engine import Engine
from broker_plugins.engine.hooks import Hooks
from broker_plugins.engine.options import EngineOptions
from broker_plugins.prometheus import PrometheusPlugin

if TYPE_CHECKING:
    from prometheus_client.core import Metric

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "metrics.md"
DEFAULTS = ROOT / "broker_plugins" / "default_broker.yaml"
HEAD = """\
# Metrics

<!-- Written by scripts/metrics_reference.py; a test compares it with the code. -->

`locus broker` answers Prometheus at `http://127.0.0.1:9464/metrics`
([`broker_plugins.prometheus.PrometheusPlugin`](configuration.md)). It listens on loopback because it asks for no
password: set `host` to let a Prometheus on another machine in. Numbers are read when somebody asks, so metrics cost
nothing while messages flow. Where the port is taken the broker runs on without metrics, and its log says so.

```yaml
scrape_configs:
  - job_name: locus
    static_configs:
      - targets: ["127.0.0.1:9464"]
```

Those who know Mosquitto's `$SYS` or EMQX find `publish/messages/received` as `locus_messages_received_total`,
`publish/messages/sent` as `locus_deliveries_total`, `publish/messages/dropped` as `locus_dropped_qos0_total` and
`locus_dropped_queue_full_total`, `clients/total` as `locus_sessions`, `retained messages/count` as
`locus_retained_messages`. Counters start at 0 with the broker and end in `_total`.
"""


def metrics() -> list[Metric]:
    """Every metric of a broker with the plugins of the default configuration."""
    configured = yaml.safe_load(DEFAULTS.read_text(encoding="utf-8"))["plugins"]
    plugins: list[Any] = []
    for path, options in configured.items():
        module, _, name = path.rpartition(".")
        plugin = getattr(importlib.import_module(module), name)
        if issubclass(plugin, Hooks):
            given = {**options, **({"port": 0} if plugin is PrometheusPlugin else {})}
            plugins.append(plugin(SimpleNamespace(config=plugin.Config(**given))))

    async def collect() -> list[Metric]:
        engine = Engine(asyncio.get_running_loop(), EngineOptions())
        engine.start(plugins)
        (prometheus,) = (plugin for plugin in plugins if isinstance(plugin, PrometheusPlugin))
        found = list(prometheus.collect())
        await asyncio.sleep(0)
        await engine.stop()
        return found

    return asyncio.run(collect())


def page() -> str:
    """The whole page."""
    parts: dict[str, list[str]] = {}
    for metric in metrics():
        if not metric.documentation:
            raise SystemExit(f"{metric.name} has no words: write some under its field")
        first = metric.name.split("_")[1]
        part = first.capitalize() + " plugin" if first in {"geo", "ranked", "retained", "telemetry"} else "The broker"
        if metric.name in {"locus_retained_messages", "locus_retained_bytes", "locus_retained_feeds"}:
            part = "The broker"
        shown = metric.name + ("_total" if metric.type == "counter" else "")
        parts.setdefault(part, []).append(f"| `{shown}` | {metric.type} | {metric.documentation} |")
    sections = [
        f"## {part}\n\n| metric | type | meaning |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"
        for part, rows in parts.items()
    ]
    return "\n".join([HEAD, *sections])


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page(), encoding="utf-8")
