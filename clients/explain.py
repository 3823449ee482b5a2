"""`locus explain`: what a filter, or a topic with clauses, means, or where it is wrong."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from broker_plugins.grammar import (
    GrammarError,
    Space,
    bare_topic,
    build_topic,
    canonical_filter,
    explain_filter,
    explain_topic,
    is_smart,
    parse_filter,
    parse_topic,
)
from clients.options import add_space

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `locus explain`."""
    parser.add_argument("filter", metavar="FILTER", help="a filter to subscribe to, or a topic with clauses (/@…)")
    add_space(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the meaning and return 0, or print what is wrong and return 1."""
    text: str = arguments.filter
    space: Space = arguments.plane
    try:
        print(_explained_topic(text, space) if _is_published(text) else _explained_filter(text, space))
    except GrammarError as error:
        print(error.render(), file=sys.stderr)
        return 1
    return 0


def _is_published(text: str) -> bool:
    """Whether it is a topic with clauses, which only a publisher can use, and not a filter."""
    return bare_topic(text) != text and not is_smart(text) and not {"+", "#"}.intersection(text)


def _explained_topic(text: str, space: Space) -> str:
    topic, clauses = parse_topic(text, space)
    canonical = build_topic(topic, clauses, space)  # this checks the topic itself, too
    lines = [explain_topic(topic, clauses, space), f"Access control judges {topic}"]
    if canonical != text:
        lines.append(f"The same, in canonical form: {canonical}")
    return "\n".join(lines)


def _explained_filter(text: str, space: Space) -> str:
    smart = parse_filter(text, space)
    lines = [explain_filter(smart, space)]
    if not smart.is_plain:
        lines.append(f"Access control judges {smart.inner}")
        canonical = canonical_filter(text, space)
        if canonical != text:
            lines.append(f"The same, in canonical form: {canonical}")
    return "\n".join(lines)
