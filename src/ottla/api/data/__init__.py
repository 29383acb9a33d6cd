"""APIs that move data: produce, fetch, and the offsets, producers and log directories that go with them."""

from __future__ import annotations

from typing import Final

APIS: Final = (
    "produce",
    "fetch",
    "list_offsets",
    "offset_for_leader_epoch",
    "delete_records",
    "describe_producers",
    "describe_log_dirs",
    "alter_replica_log_dirs",
)
"""The files of this area, each with the name of its API; the registry loads them."""
