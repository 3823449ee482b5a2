"""Writes docs/reference/configuration.md from the options' dataclasses: defaults and words stand in one place only."""

from __future__ import annotations

import importlib
import inspect
import sys
from dataclasses import MISSING, fields
from pathlib import Path

from broker_plugins.documented import documented

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "configuration.md"
DEFAULTS = Path(__file__).parents[1] / "broker_plugins" / "default_broker.yaml"
NOT_BY_DEFAULT = ["broker_plugins.access_list.AccessListPlugin", "broker_plugins.cluster.plugin.ClusterPlugin"]
HEAD = """\
# Configuration

<!-- Written by scripts/configuration_reference.py; a test compares it with the code. -->

A Locus broker is configured as amqtt is: `listeners:` and `plugins:` in a YAML file, given to `locus broker -c FILE` or
to `amqtt -c FILE`. Each plugin is named by its path, with its options below it; an option that does not exist is
refused by name. What `locus broker` runs without a file:

```yaml
{defaults}```
"""


def plugin_paths() -> list[str]:
    """The plugins of Locus: those that are part of the default configuration, and those that are not by intent."""
    import yaml

    configured = yaml.safe_load(DEFAULTS.read_text(encoding="utf-8"))["plugins"]
    return [path for path in configured if path.startswith("broker_plugins.")] + NOT_BY_DEFAULT


def section(path: str) -> str:
    """The options of one plugin."""
    module, _, name = path.rpartition(".")
    plugin = getattr(importlib.import_module(module), name)
    words = documented(plugin.Config)
    lines = [f"## `{path}`", "", inspect.getdoc(plugin) or "", ""]
    rows = []
    for option in fields(plugin.Config):
        if option.name not in words:
            raise SystemExit(f"{path}: the option {option.name} has no line of documentation under it")
        default = option.default if option.default is not MISSING else option.default_factory()  # type: ignore[misc]
        shown = "" if default is None else f"`{default!r}`".replace("'", '"')
        rows.append(f"| `{option.name}` | {shown} | {words[option.name]} |")
    if rows:
        lines += ["| option | default | meaning |", "| --- | --- | --- |", *rows, ""]
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    head = HEAD.format(defaults=DEFAULTS.read_text(encoding="utf-8"))
    return head + "\n" + "\n".join(section(path) for path in plugin_paths())


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
