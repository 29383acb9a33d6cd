"""StreamsGroupDescribe (key 89), version 0.

Describes streams groups with their topology, members and tasks.
"""

from __future__ import annotations

from ottla.api.groups.describing import describe_api
from ottla.api.groups.streams_group_heartbeat import require_streams_protocol
from ottla.wire.apis import ApiKey
from ottla.wire.messages import StreamsGroupDescribeResponse

API = describe_api(
    ApiKey.STREAMS_GROUP_DESCRIBE,
    StreamsGroupDescribeResponse,
    StreamsGroupDescribeResponse.DescribedGroup,
    require_streams_protocol,
    lambda shard, group_id: shard.streams.describe(group_id),
    lambda group: (
        topic
        for part in (group.topology and group.topology.subtopologies) or ()
        for topic in (
            *part.source_topics,
            *part.repartition_sink_topics,
            *(info.name for info in part.repartition_source_topics),
            *(info.name for info in part.state_changelog_topics),
        )
    ),
)
