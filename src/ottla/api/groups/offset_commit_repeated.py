"""OffsetCommit requests that repeat: those of one consumer mostly differ in their correlation id and offsets.

They are recognised by their bytes, and only what differs is decoded and encoded. `coordinator.group.repeated_commit`
makes their records. Everything else, and every error, is left to `offset_commit.py`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.api.groups.requests import info_of
from ottla.coordinator.group.offset_metadata_manager import commit_response
from ottla.coordinator.group.repeated_commit import RepeatedCommit, position_of, repeated_commit
from ottla.wire.headers import encode_request, encode_response
from ottla.wire.messages import OffsetCommitRequest

if TYPE_CHECKING:
    from ottla.api.base import RequestContext
    from ottla.broker.services import Broker
    from ottla.metadata.image import MetadataImage

_MAX_BYTES: Final = 8 << 10
_OFFSET_MARKS: Final = 0x5B1D_37C9_6C00_0000
"""Values that stand for offsets while their places in a request are looked for. The last two bytes number them."""
_SIZE_BYTES: Final = 4
_ID_AT: Final = 4
_AFTER_ID: Final = 8
_NO_ERROR: Final = 0


class RepeatedOffsetCommit:
    """What the commits of a consumer have in common, and their response."""

    __slots__ = (
        "_commit",
        "_common",
        "_correlation_id",
        "_image",
        "_response_rest",
        "_response_size",
        "_size",
        "_unpack",
        "_write",
        "version",
    )

    def __init__(
        self, version: int, commit: RepeatedCommit, frame: bytes, offsets_at: list[int], response: bytes
    ) -> None:
        """`offsets_at`: where the offsets are in the frame, in ascending order."""
        self.version = version
        self._commit = commit
        self._image: MetadataImage | None = None
        """The one in which all partitions were last looked up."""
        self._size = len(frame)
        self._correlation_id = 0
        ends = [*offsets_at, len(frame)]
        starts = [_AFTER_ID, *(at + 8 for at in offsets_at)]
        pieces = "q".join(f"{end - start}s" for start, end in zip(starts, ends, strict=True))
        self._unpack = Struct(f">{_ID_AT}si{pieces}").unpack
        fields = self._unpack(frame)
        self._common = fields[0], fields[2::2]
        self._response_size = response[:_SIZE_BYTES]
        self._response_rest = response[_AFTER_ID:]
        self._write = Struct(f">{_SIZE_BYTES}si{len(self._response_rest)}s").pack

    def reads(self, frame: memoryview) -> bool:
        """Take the offsets of a request, if it is like those before. Only then `answer` may be called."""
        if len(frame) != self._size:
            return False
        fields = self._unpack(frame)
        if (fields[0], fields[2::2]) != self._common:
            return False
        self._correlation_id = fields[1]
        self._commit.offsets = fields[3::2]
        return True

    def answer(self, broker: Broker) -> bytes | None:
        """Commit, and return the response. None: nothing has happened, and the whole request is needed."""
        image = broker.image
        if image is not self._image:
            if not all_exist(self._commit, image):
                return None
            self._image = image
        if not broker.groups.repeat_commit(self._commit):
            return None
        return self._write(self._response_size, self._correlation_id, self._response_rest)


def all_exist(commit: RepeatedCommit, image: MetadataImage) -> bool:
    """Whether all topics still exist, with the same ids and with the committed partitions."""
    by_name = image.topics.by_name
    for topic, topic_id, partition, _ in commit.places:
        found = by_name.get(topic)
        if found is None or found.id != topic_id or partition not in found.partitions:
            return False
    return True


def repeated_offset_commit(
    broker: Broker, ctx: RequestContext, frame: memoryview, request: OffsetCommitRequest
) -> RepeatedOffsetCommit | None:
    """Learn from a request what the next ones may have in common with it; None if that is not worth it."""
    if len(frame) > _MAX_BYTES:
        return None
    commit = repeated_commit(info_of(ctx), request)
    if commit is None or not all_exist(commit, broker.image):
        return None
    data = bytes(frame)
    marked = b"".join(encode_request(ctx.correlation_id, ctx.client_id, _marked(request), ctx.version))
    marked = marked[_SIZE_BYTES:]
    try:
        offsets_at = [position_of(marked, _OFFSET_MARKS + number) for number in range(commit.count)]
    except ValueError:
        return None
    if len(marked) != len(data) or _without(marked, offsets_at) != _without(data, offsets_at):
        return None  # it has tags, or is encoded in another way
    topics = tuple(
        (topic.name, topic.topic_id, tuple((each.partition_index, _NO_ERROR) for each in topic.partitions))
        for topic in request.topics
    )
    response = b"".join(encode_response(0, commit_response.__wrapped__(topics), ctx.version))
    return RepeatedOffsetCommit(ctx.version, commit, data, offsets_at, response)


def _marked(request: OffsetCommitRequest) -> OffsetCommitRequest:
    """The same request with a mark in place of each offset."""
    number = 0
    topics = []
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            partitions.append(
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=each.partition_index,
                    committed_offset=_OFFSET_MARKS + number,
                    committed_leader_epoch=each.committed_leader_epoch,
                    committed_metadata=each.committed_metadata,
                )
            )
            number += 1
        topics.append(
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            )
        )
    return OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms,
        topics=topics,
    )


def _without(data: bytes, places: list[int]) -> bytes:
    """The data with zeros in place of the offsets."""
    copy = bytearray(data)
    for at in places:
        copy[at : at + 8] = bytes(8)
    return bytes(copy)
