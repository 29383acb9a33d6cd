"""APIs of queues: fetching from and acknowledging to share partitions, and the share coordinator's state."""

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
"""The files of this area, each called as its API is; the registry loads them."""
