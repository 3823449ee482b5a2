"""A simulated city that uses a broker as a real one would: streets, traffic, fences, offers, sensors and listeners.

`topics` is the contract with whoever watches it: where everything is published, and in what shape.
"""

from __future__ import annotations
