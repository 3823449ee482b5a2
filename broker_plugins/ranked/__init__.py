"""`$where` subscriptions, and messages that go to the k receivers who match best.

`RankedPlugin` is the plugin; conditions, accuracy, shelves and choice are its parts.
"""

from broker_plugins.ranked.options import RankedCounters, RankedOptions
from broker_plugins.ranked.plugin import RankedPlugin

__all__ = ["RankedCounters", "RankedOptions", "RankedPlugin"]
