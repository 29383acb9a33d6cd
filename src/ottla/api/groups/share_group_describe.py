"""ShareGroupDescribe (key 77), version 1.

Describes share groups with their members and assignments. 1 is the first stable version.
"""

from __future__ import annotations

from ottla.api.groups.describing import describe_api
from ottla.api.share.requests import require_share_groups_silently
from ottla.wire.apis import ApiKey
from ottla.wire.messages import ShareGroupDescribeResponse

API = describe_api(
    ApiKey.SHARE_GROUP_DESCRIBE,
    ShareGroupDescribeResponse,
    ShareGroupDescribeResponse.DescribedGroup,
    require_share_groups_silently,
    lambda shard, group_id: shard.share.describe(group_id),
    lambda group: (
        topic.topic_name for member in group.members for topic in member.assignment.topic_partitions
    ),
)
