"""APIs of share groups: fetch from share partitions, acknowledge records, and keep share state."""

from __future__ import annotations

from typing import Final

APIS: Final = (
    "delete_share_group_state",
    "initialize_share_group_state",
    "read_share_group_state",
    "read_share_group_state_summary",
    "share_acknowledge",
    "share_fetch",
    "write_share_group_state",
)
"""The files of this area, each named after its API; the registry loads them."""
