"""`locus top`: what a broker does, in a terminal."""

from __future__ import annotations

from clients.top.figures import Figures, Node, Prefix, Share

__all__ = ["Figures", "Node", "Prefix", "Share"]
