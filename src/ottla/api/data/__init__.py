"""APIs that move data: produce, fetch and what they need to know about offsets, producers and log dirs."""

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
"""The files of this area, each called as its API is; the registry loads them."""
