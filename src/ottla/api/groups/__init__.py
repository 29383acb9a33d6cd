"""APIs of groups: membership, offsets, and administration."""

from __future__ import annotations

from typing import Final

APIS: Final = (
    "alter_share_group_offsets",
    "consumer_group_describe",
    "consumer_group_heartbeat",
    "delete_groups",
    "delete_share_group_offsets",
    "describe_groups",
    "describe_share_group_offsets",
    "heartbeat",
    "join_group",
    "leave_group",
    "list_groups",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "share_group_describe",
    "share_group_heartbeat",
    "streams_group_describe",
    "streams_group_heartbeat",
    "sync_group",
)
"""The files of this area, each named after its API; the registry loads them."""
