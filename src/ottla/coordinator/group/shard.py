"""One shard of the group coordinator: the modules of all group types over one registry and its offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.classic.groups import ClassicGroups
from ottla.coordinator.group.context import GroupContext, GroupModule, Replay
from ottla.coordinator.group.groups import Groups
from ottla.coordinator.group.offsets import Offsets
from ottla.coordinator.records import RecordSerde
from ottla.coordinator.shard import ShardContext

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.image import MetadataImage

SERDE = RecordSerde(
    (
        "LegacyOffsetCommit",
        "OffsetCommit",
        "GroupMetadata",
        "ConsumerGroupMetadata",
        "ConsumerGroupPartitionMetadata",
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupCurrentMemberAssignment",
        "ConsumerGroupRegularExpression",
        "ShareGroupMetadata",
        "ShareGroupMemberMetadata",
        "ShareGroupTargetAssignmentMetadata",
        "ShareGroupTargetAssignmentMember",
        "ShareGroupCurrentMemberAssignment",
        "ShareGroupStatePartitionMetadata",
        "StreamsGroupMetadata",
        "StreamsGroupMemberMetadata",
        "StreamsGroupTargetAssignmentMetadata",
        "StreamsGroupTargetAssignmentMember",
        "StreamsGroupCurrentMemberAssignment",
        "StreamsGroupTopology",
    )
)


class GroupShard:
    """Implements `CoordinatorShard`. Operations live in the modules: `shard.classic.join(...)`, `shard.consumer...`."""

    __slots__ = ("_modules", "_replays", "classic", "context", "groups", "offsets")

    def __init__(self, shard: ShardContext, config: BrokerConfig, image: MetadataImage) -> None:
        self.groups = Groups()
        self.offsets = Offsets(self.groups)
        self.context = GroupContext(self.groups, self.offsets, shard.timers, shard.clock, config, image)
        self.classic = ClassicGroups(self.context)
        # Each type's module: an attribute above for its operations, and an entry here for the life of the shard.
        self._modules: tuple[GroupModule, ...] = (self.classic,)
        self._replays: dict[str, Replay] = {}
        for module in self._modules:
            self._replays.update(module.replays())
