"""APIs of groups: members that join, sync, heartbeat and leave, their offsets, and what admins ask about them."""

from __future__ import annotations

from ottla.api.base import Api
from ottla.api.groups import (
    alter_share_group_offsets,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    delete_share_group_offsets,
    describe_groups,
    describe_share_group_offsets,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
)

APIS: tuple[Api, ...] = (
    alter_share_group_offsets.API,
    consumer_group_describe.API,
    consumer_group_heartbeat.API,
    delete_groups.API,
    delete_share_group_offsets.API,
    describe_groups.API,
    describe_share_group_offsets.API,
    heartbeat.API,
    join_group.API,
    leave_group.API,
    list_groups.API,
    offset_commit.API,
    offset_delete.API,
    offset_fetch.API,
    share_group_describe.API,
    share_group_heartbeat.API,
    streams_group_describe.API,
    streams_group_heartbeat.API,
    sync_group.API,
)
