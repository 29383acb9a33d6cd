"""A node, wired together: the only place that knows all of its parts, their order of birth and of death."""

from __future__ import annotations

from ottla.server.environment import Environment
from ottla.server.node import Server

__all__ = ["Environment", "Server"]
