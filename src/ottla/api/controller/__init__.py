"""The active controller's APIs for other nodes, and the admin APIs for replicas and leaders."""

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
"""The modules of this package, one for each API; the registry loads them."""
