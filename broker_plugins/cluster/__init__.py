"""Brokers as one: what is published on one node reaches the subscribers of all, over a NATS fabric."""

from broker_plugins.cluster.options import ClusterOptions
from broker_plugins.cluster.plugin import ClusterPlugin

__all__ = ["ClusterOptions", "ClusterPlugin"]
