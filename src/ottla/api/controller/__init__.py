"""What the active controller answers to other nodes, and the admin APIs about replicas and leaders."""

from __future__ import annotations

from typing import Final

APIS: Final = (
    "elect_leaders",
    "alter_partition_reassignments",
    "list_partition_reassignments",
    "alter_partition",
    "broker_registration",
    "broker_heartbeat",
    "allocate_producer_ids",
    "controller_registration",
    "assign_replicas_to_dirs",
)
"""The files of this area, each called as its API is; the registry loads them."""
