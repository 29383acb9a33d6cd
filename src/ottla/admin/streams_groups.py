"""Groups of Streams applications: their members, tasks and topology."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.admin.errors import raise_for
from ottla.ids import GroupId
from ottla.wire.messages import StreamsGroupDescribeRequest

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.admin.connection import Node
    from ottla.wire.messages import StreamsGroupDescribeResponse

    StreamsGroup = StreamsGroupDescribeResponse.DescribedGroup


def describe_streams_group(cluster: Cluster, group_id: str) -> tuple[Node, StreamsGroup]:
    """A group and its coordinator; ApiException if it cannot be described."""
    broker_id = cluster.coordinator(group_id)
    request = StreamsGroupDescribeRequest(group_ids=[GroupId(group_id)])
    (group,) = cluster.ask(request, broker_id).groups
    raise_for(group.error_code, group.error_message, group_id)
    return cluster.nodes()[broker_id], group
