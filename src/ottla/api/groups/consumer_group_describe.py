"""ConsumerGroupDescribe (key 69), versions 0-1.

Describes consumer groups with their members, assignments and target assignments.

1 adds whether a member uses the classic or the consumer protocol.
"""

from __future__ import annotations

from ottla.api.groups.consumer_group_heartbeat import require_consumer_protocol
from ottla.api.groups.describing import describe_api
from ottla.wire.apis import ApiKey
from ottla.wire.messages import ConsumerGroupDescribeResponse

API = describe_api(
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponse.DescribedGroup,
    require_consumer_protocol,
    lambda shard, group_id: shard.consumer.describe(group_id),
    lambda group: (
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    ),
)
