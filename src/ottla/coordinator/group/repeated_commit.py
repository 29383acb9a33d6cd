"""Commits that repeat: those of one consumer mostly differ in their offsets only.

Such a commit's batch is a template of bytes, into which offsets and times are written. The group decides whether the
member may commit, as for any other commit; `ottla.api.groups.offset_commit_repeated` recognises the requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.coordinator.batching import build_plain
from ottla.coordinator.group.offset import NO_EXPIRY, NO_METADATA, CommittedOffset, offset_record
from ottla.errors import ApiException
from ottla.ids import TopicName
from ottla.records.batch import ATTRIBUTES_POSITION, MAGIC
from ottla.records.codecs import Compression
from ottla.records.crc import crc32c

if TYPE_CHECKING:
    from ottla.coordinator.group.context import RequestInfo
    from ottla.coordinator.group.shard import GroupShard
    from ottla.wire.messages import OffsetCommitRequest

MAX_PARTITIONS: Final = 64
_DEFAULT_RETENTION: Final = -1
_INT64: Final = Struct(">q")
_OFFSET_MARKS: Final = 0x5B1D_37C9_6A00_0000
_TIME_MARKS: Final = 0x5B1D_37C9_6B00_0000
"""Values that stand for offsets and times while a template is made. The last two bytes number them."""
_BEGIN: Final = Struct(">qiibI")
"""Base offset, length, leader epoch, magic, checksum."""
_TIMES: Final = Struct(">qq")
_TIMES_AT: Final = 27

Place = tuple[TopicName, bytes, int, int]
"""Topic, its id, partition, and the leader epoch of the committed offset."""


class RepeatedCommit:
    """A commit of known partitions by a known member. `offsets` is set for each request, one for each partition."""

    __slots__ = (
        "_length",
        "_positions",
        "_template",
        "api_version",
        "epoch",
        "group_id",
        "instance_id",
        "member_id",
        "offsets",
        "places",
    )

    def __init__(
        self,
        info: RequestInfo,
        request: OffsetCommitRequest,
        places: Sequence[Place],
        template: bytes,
        positions: Sequence[tuple[int, int]],
    ) -> None:
        """`positions`: where each partition's offset and time are in the template."""
        self.api_version = info.api_version
        self.group_id = request.group_id
        self.member_id = request.member_id
        self.instance_id = request.group_instance_id
        self.epoch = request.generation_id_or_member_epoch
        self.places = places
        self.offsets: Sequence[int] = ()
        self._template = template
        self._length = len(template) - 12
        self._positions = positions

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.places)

    def allowed(self, shard: GroupShard) -> bool:
        """Whether the member may still commit. False: the whole request finds out why not."""
        group = shard.groups.get(self.group_id)
        if group is None:
            return False
        try:
            check = group.validate_offset_commit(
                self.member_id, self.instance_id, self.epoch, self.api_version, False
            )
            if check is not None:
                for topic, topic_id, partition, _ in self.places:
                    check(topic, topic_id, partition)
        except ApiException:
            return False
        shard.classic.touch(group, self.member_id)
        return True

    def build(self, base_offset: int, leader_epoch: int, now_ms: int) -> bytearray:
        """The batch, as `build_plain` makes it of the records."""
        batch = bytearray(self._template)
        _TIMES.pack_into(batch, _TIMES_AT, now_ms, now_ms)
        put = _INT64.pack_into
        for (offset_at, time_at), offset in zip(self._positions, self.offsets, strict=True):
            put(batch, offset_at, offset)
            put(batch, time_at, now_ms)
        checksum = crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])
        _BEGIN.pack_into(batch, 0, base_offset, self._length, leader_epoch, MAGIC, checksum)
        return batch

    def replay(self, shard: GroupShard, record_offset: int, now_ms: int) -> None:
        """Change the state as the batch's records do."""
        put, group_id = shard.offsets.put, self.group_id
        for (topic, topic_id, partition, leader_epoch), offset in zip(self.places, self.offsets, strict=True):
            committed = CommittedOffset(
                offset, leader_epoch, NO_METADATA, now_ms, NO_EXPIRY, topic_id, record_offset
            )
            put(group_id, topic, partition, committed)
            record_offset += 1


def repeated_commit(info: RequestInfo, request: OffsetCommitRequest) -> RepeatedCommit | None:
    """Make a template of a commit; None for commits with metadata, a retention time or too many partitions."""
    places: list[Place] = []
    for topic in request.topics:
        for partition in topic.partitions:
            if partition.committed_metadata or len(places) == MAX_PARTITIONS:
                return None
            epoch = max(partition.committed_leader_epoch, -1)
            places.append((topic.name, topic.topic_id, partition.partition_index, epoch))
    if not places or request.retention_time_ms != _DEFAULT_RETENTION:
        return None
    records = [
        offset_record(
            request.group_id,
            topic,
            index,
            offset=_OFFSET_MARKS + number,
            leader_epoch=epoch,
            metadata=None,
            commit_ms=_TIME_MARKS + number,
            expire_ms=NO_EXPIRY,
            topic_id=topic_id,
        ).encoded
        for number, (topic, topic_id, index, epoch) in enumerate(places)
    ]
    encoded = [record for record in records if record is not None]
    if len(encoded) < len(places):
        return None
    template = build_plain(encoded, 0, Compression.NONE)
    try:
        positions = [
            (position_of(template, _OFFSET_MARKS + number), position_of(template, _TIME_MARKS + number))
            for number in range(len(places))
        ]
    except ValueError:
        return None
    return RepeatedCommit(info, request, places, template, positions)


def position_of(data: bytes, mark: int) -> int:
    """Where a value of eight bytes is. ValueError unless it is there exactly once."""
    mark_bytes = _INT64.pack(mark)
    if data.count(mark_bytes) != 1:
        raise ValueError("the mark is not there, or not alone")
    return data.index(mark_bytes)
