"""APIs that move data: produce, fetch and what they need to know about offsets, producers and log dirs."""

from __future__ import annotations

from ottla.api.base import Api
from ottla.api.data import (
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    describe_producers,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)

APIS: tuple[Api, ...] = (
    produce.API,
    fetch.API,
    list_offsets.API,
    offset_for_leader_epoch.API,
    delete_records.API,
    describe_producers.API,
    describe_log_dirs.API,
    alter_replica_log_dirs.API,
)
