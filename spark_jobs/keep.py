"""How much of a lake is kept, and the options that say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


@dataclass(frozen=True, slots=True)
class Keep:
    """How much of a lake is kept.

    Args:
        max_age_s: records whose time lies further back are dropped; None keeps them.
        max_bytes: bytes of all tables; the oldest are dropped when there are more. None keeps them.
    """

    max_age_s: float | None = None
    max_bytes: int | None = None

    @property
    def everything(self) -> bool:
        """Whether nothing is ever dropped."""
        return self.max_age_s is None and self.max_bytes is None


def add_keep_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say how much of the lake is kept."""
    parser.add_argument("--max-age-days", type=float, help="drop records of the lake that are older (keep all)")
    parser.add_argument(
        "--max-bytes", type=int, help="drop the oldest records beyond so many bytes of tables (keep all)"
    )


def keep_of(arguments: argparse.Namespace) -> Keep:
    """What of the lake is kept, by these options."""
    days: float | None = arguments.max_age_days
    return Keep(None if days is None else days * 86_400.0, arguments.max_bytes)
