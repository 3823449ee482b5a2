"""How large what a client says may be. A broker may set these lower or higher; both sides have the same defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on filters and clauses: what exceeds one is refused with a `GrammarError`.

    Attributes:
        filter_bytes: Longest filter, prefixes included, in bytes of UTF-8. MQTT itself ends at 65,535.
        levels: Most levels of the inner filter.
        attributes: Most attributes in one `$where`.
        conditions: Most conditions in one `$where`; several may speak of one attribute.
        attribute_levels: Most names joined by dots in one attribute.
        name_characters: Longest attribute (dots included), fence name or share group.
        radius_metres: Longest radius. The default is half way round the earth.
        top: Largest K of `top:K`.
    """

    filter_bytes: int = 65_535
    levels: int = 200
    attributes: int = 16
    conditions: int = 64
    attribute_levels: int = 8
    name_characters: int = 128
    radius_metres: float = 20_037_509.0
    top: int = 10_000


DEFAULT_LIMITS = Limits()
