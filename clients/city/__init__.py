"""A simulated city that uses a broker as a real one would: streets, traffic, fences, offers, sensors and listeners.

`Town` is the city itself, from a seed, without a clock or a network; `Simulation` lets it live on a broker. `topics` is
the contract with whoever watches it: where everything is published, and in what shape.
"""

from __future__ import annotations

from clients.city.simulation import Simulation
from clients.city.town import Town

__all__ = ["Simulation", "Town"]
