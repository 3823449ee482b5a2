"""Retained messages that wait where something newer is about to come.

`RetainedPlugin` is the plugin; rules, the policy file's watcher, what is known of topics, open decisions and their
explanation are its parts. What is decided, and what is owed meanwhile, is `rl_policy`'s.
"""

from broker_plugins.retained.options import RetainedCounters, RetainedOptions
from broker_plugins.retained.plugin import RetainedPlugin

__all__ = ["RetainedCounters", "RetainedOptions", "RetainedPlugin"]
