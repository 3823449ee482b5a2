"""`locus demo`: a broker with everything on, a city on it, Spark behind it and a page to watch, in one command."""

from __future__ import annotations
