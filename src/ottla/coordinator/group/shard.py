"""One shard of the group coordinator: a registry of groups, their offsets, and a module for each type of group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.admin import GroupAdmin
from ottla.coordinator.group.classic.groups import ClassicGroups
from ottla.coordinator.group.consumer.groups import ConsumerGroups
from ottla.coordinator.group.context import GroupContext, GroupModule, Replay
from ottla.coordinator.group.groups import Groups
from ottla.coordinator.group.offset_metadata_manager import OffsetMetadataManager
from ottla.coordinator.group.offsets import Offsets
from ottla.coordinator.group.share.groups import ShareGroups
from ottla.coordinator.group.streams.groups import StreamsGroups
from ottla.coordinator.records import CoordinatorRecord, RecordSerde
from ottla.coordinator.shard import ShardContext
from ottla.ids import GroupId
from ottla.wire.messages import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage

SERDE = RecordSerde(
    (
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

    __slots__ = (
        "_modules",
        "_replays",
        "admin",
        "classic",
        "commits",
        "consumer",
        "context",
        "groups",
        "offsets",
        "share",
        "streams",
    )

    def __init__(self, shard: ShardContext, config: BrokerConfig, image: MetadataImage) -> None:
        self.groups = Groups()
        self.offsets = Offsets(self._ensure_group)
        self.context = GroupContext(self.groups, self.offsets, shard.timers, shard.clock, config, image)
        self.classic = ClassicGroups(self.context)
        self.consumer = ConsumerGroups(self.context, self.classic)
        self.share = ShareGroups(self.context)
        self.streams = StreamsGroups(self.context)
        self.commits = OffsetMetadataManager(self.context, self.classic.simple_group, self.classic.touch)
        self.admin = GroupAdmin(self.context, self.commits)
        # The module of each type is an attribute above for its operations, and an entry here for replay and events.
        self._modules: tuple[GroupModule, ...] = (self.classic, self.consumer, self.share, self.streams)
        self._replays: dict[str, Replay] = {}
        for module in self._modules:
            self._replays.update(module.replays())

    def _ensure_group(self, group_id: str, commit_ms: int) -> None:
        """Offsets without a group are those of a simple consumer: create its group, which has nothing else."""
        if self.groups.get(group_id) is None:
            self.groups.put(self.classic.simple_group(GroupId(group_id), commit_ms))

    def configure(self, config: BrokerConfig) -> None:
        """The broker's configs changed."""
        self.context.config = config

    # -- CoordinatorShard

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.replay(offset, producer_id, key, value)
            return
        replay = self._replays.get(key.NAME)
        if replay is not None:
            replay(key, value)

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, commit: bool) -> None:
        self.offsets.replay_end_transaction_marker(producer_id, commit)

    def on_loaded(self, image: MetadataImage, now_ms: int) -> None:
        self.context.image = image
        for module in self._modules:
            module.on_loaded(now_ms)
        self.admin.start()

    def on_unloaded(self) -> None:
        for module in self._modules:
            module.on_unloaded()

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.context.image = image
        for module in self._modules:
            module.on_metadata_update(delta)
        if delta.deleted_topics:
            self.admin.topics_deleted({topic.name: topic.id for topic in delta.deleted_topics.values()})
