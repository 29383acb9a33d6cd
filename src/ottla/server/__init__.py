"""Assembles a node: the only package that knows all of its parts, and their order of start and stop."""

from __future__ import annotations

from ottla.server.environment import Environment
from ottla.server.node import Server

__all__ = ["Environment", "Server"]
