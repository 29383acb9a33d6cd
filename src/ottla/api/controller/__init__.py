"""What the active controller answers to other nodes, and the admin APIs about replicas and leaders."""

from __future__ import annotations

from ottla.api.base import Api
from ottla.api.controller import (
    allocate_producer_ids,
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    elect_leaders,
    list_partition_reassignments,
)

APIS: tuple[Api, ...] = (
    elect_leaders.API,
    alter_partition_reassignments.API,
    list_partition_reassignments.API,
    alter_partition.API,
    broker_registration.API,
    broker_heartbeat.API,
    allocate_producer_ids.API,
    controller_registration.API,
    assign_replicas_to_dirs.API,
)
