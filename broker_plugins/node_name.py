"""What a broker is called that nobody gave a name: the same by whatever plugin asks."""

from __future__ import annotations

import re
import socket


def default_node() -> str:
    """The machine's name, as far as a cluster and a file's name can hold it: other characters are dashes."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname()).lstrip("-_")[:64] or "broker"
