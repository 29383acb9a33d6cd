"""The pages, one file per area. Each module adds its pages and changes to the application's lists when it is loaded."""

from __future__ import annotations

from importlib import import_module
from typing import Final

MODULES: Final = (
    "overview",
    "topics",
    "topic",
    "records",
    "live_tail",
    "log",
    "numbers",
    "time_travel",
    "topic_changes",
    "topics_changes",
    "produce",
    "export",
    "groups",
    "reset",
    "other_groups",
    "replay",
    "pipelines",
    "quarantine",
    "schemas",
    "connect",
    "nodes",
    "node_changes",
    "quorum_changes",
    "transactions",
    "moves",
    "access",
    "access_changes",
    "access_more",
    "topic_schema",
    "topic_access",
    "compare",
    "settings",
    "design",
    "api",
    "openapi",
    "palette",
)
"""In the order of the rail."""


def load() -> None:
    """Load every area once."""
    for name in MODULES:
        import_module(f"ottla.console.pages.{name}")
