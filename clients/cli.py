"""The `locus` command: one module for each subcommand, imported only when it is asked for.

Each module has `add_arguments(parser)` and `run(arguments) -> int`. They are named here by their path, so that the
client library does not depend on the broker, on the benchmarks or on Spark.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol, cast

COMMANDS = {
    "demo": ("clients.demo.command", "show it all: a broker, a city on it, Spark behind it, a page to watch"),
    "sub": ("clients.sub", "subscribe by topic, place and numbers, and print what comes"),
    "pub": ("clients.pub", "publish a message, at a place, to the best matches, for a while"),
    "fence": ("clients.fence", "put, list and remove the fences that $geo/fence:NAME listens in"),
    "retained": ("clients.retained", "say why a topic's retained message is sent at once, or let wait"),
    "explain": ("clients.explain", "say what a filter or a topic with clauses means, or where it is wrong"),
    "top": ("clients.top.command", "show what a broker does, live in this terminal"),
    "doctor": ("clients.doctor", "look at this machine, and say what is missing and what to do about it"),
    "city": ("clients.city.command", "let a simulated city live on a broker: traffic, fences, jobs, sensors"),
    "broker": ("broker_plugins.command", "start a broker"),
    "passwd": ("broker_plugins.passwords", "say who may come in: set or remove a user's password"),
    "pipeline": ("spark_jobs.command", "read the broker's telemetry with Spark: metrics, training, slow regions"),
    "dashboard": ("spark_jobs.dashboard.command", "a page that shows what a broker does, live and over time"),
    "cluster": ("broker_plugins.cluster.command", "start nodes on this machine, or look at a cluster"),
    "bench": ("benchmarks.command", "measure Locus against its peers"),
    "reproduce": ("benchmarks.reproduction.command", "re-run the evaluation of a paper Locus is built from"),
}

EXTRAS = {
    "matplotlib": "plots",
    "nats": "cluster",
    "nicegui": "dashboard",
    "pandas": "spark",
    "pyarrow": "telemetry",
    "pyspark": "spark",
}
"""Which extra brings a module that some commands need."""


class Command(Protocol):
    """What a subcommand's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options of the subcommand."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it, and return the exit code."""


def installed_version() -> str:
    """The version of the installed distribution, or `unknown` in a bare checkout."""
    try:
        return version("locus-mqtt")
    except PackageNotFoundError:
        return "unknown"


def main(argv: list[str] | None = None) -> int:
    """Run `locus` with the given words (those of the process by default) and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    asked = next((word for word in words if not word.startswith("-")), None)
    try:
        return _run(words, asked)
    except KeyboardInterrupt:
        return 130
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        remedy = f"pip install 'locus-mqtt[{EXTRAS[missing]}]'"
        print(f"locus {asked} needs {missing}, which is not installed: {remedy}", file=sys.stderr)
        return 1


def _run(words: list[str], asked: str | None) -> int:
    parser = argparse.ArgumentParser(
        prog="locus",
        description="An MQTT broker that knows where, how well and in what order.",
        epilog="`locus COMMAND --help` lists the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"locus {installed_version()}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    command: Command | None = None
    for name, (path, summary) in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name == asked:
            command = cast("Command", importlib.import_module(path))
            command.add_arguments(subparser)
    if not words:
        parser.print_help()
        return 2
    arguments = parser.parse_args(words)
    assert command is not None  # argparse refuses any other word
    return command.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
