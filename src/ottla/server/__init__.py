"""A node, wired together: the only place that knows all of its parts, their order of birth and of death."""

from __future__ import annotations

from ottla.server.node import Server
from ottla.server.surroundings import Surroundings

__all__ = ["Server", "Surroundings"]
