"""APIs of queues: fetching from and acknowledging to share partitions, and the share coordinator's state."""

from __future__ import annotations

from ottla.api.base import Api
from ottla.api.share import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
    write_share_group_state,
)

APIS: tuple[Api, ...] = (
    delete_share_group_state.API,
    initialize_share_group_state.API,
    read_share_group_state.API,
    read_share_group_state_summary.API,
    share_acknowledge.API,
    share_fetch.API,
    write_share_group_state.API,
)
