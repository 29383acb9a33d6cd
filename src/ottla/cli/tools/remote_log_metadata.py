"""The records of `__remote_log_metadata`, what tiered storage notes of segments: the text that kafka-dump-log prints.

A value is a frame version, a type, a version (all varints) and the message. The error of a broken one is in the
words of Kafka's tool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.errors import ApiException
from ottla.records.record import Record
from ottla.wire import messages
from ottla.wire.codec import decode_prefix
from ottla.wire.errors import DecodeError
from ottla.wire.primitives import read_uvarint
from ottla.wire.uuid import uuid_to_str

if TYPE_CHECKING:
    from ottla.wire.messages import RemoteLogSegmentMetadataRecord as Segment
    from ottla.wire.messages import RemoteLogSegmentMetadataSnapshotRecord as Snapshot
    from ottla.wire.messages import RemoteLogSegmentMetadataUpdateRecord as Update
    from ottla.wire.messages import RemotePartitionDeleteMetadataRecord as Deletion

    _Partition = Segment.TopicIdPartitionEntry | Update.TopicIdPartitionEntry | Deletion.TopicIdPartitionEntry

_FRAME_VERSION: Final = 1

_SEGMENT_STATES: Final = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_PARTITION_STATES: Final = (
    "DELETE_PARTITION_MARKED",
    "DELETE_PARTITION_STARTED",
    "DELETE_PARTITION_FINISHED",
)


def of_remote_log_metadata(record: Record) -> tuple[str | None, str | None]:
    """The value's text; keys mean nothing in this topic."""
    try:
        return None, metadata_text(record.value)
    except ApiException as error:
        return None, f"Error at offset {record.offset}, skipping. {error.message}"


def metadata_text(value: bytes | None) -> str:
    """The text of a value, as Kafka's classes print themselves."""
    if value is None:
        raise DecodeError("There is no value.")
    frame_version, position = _read_short(value, 0, "frame version")
    if frame_version == 0:
        raise DecodeError(
            "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview"
            " release of KRaft in 2.8 to newer versions are not supported."
        )
    if frame_version != _FRAME_VERSION:
        raise DecodeError(
            f"Could not deserialize metadata record due to unknown frame version {frame_version}"
            f"(only frame version {_FRAME_VERSION} is supported)"
        )
    kind, position = _read_short(value, position, "type")
    version, position = _read_short(value, position, "version")
    if kind not in _TEXTS:
        raise DecodeError(
            f"org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {kind}"
        )
    name, text = _TEXTS[kind]
    try:
        message, end = decode_prefix(getattr(messages, name), version, value, position)
    except ApiException as error:
        raise DecodeError(f"Failed to deserialize record with type {kind}") from error
    if end != len(value):
        raise DecodeError(f"Found {len(value) - end} byte(s) of garbage after {kind}")
    return text(message)


def _read_short(value: bytes, position: int, what: str) -> tuple[int, int]:
    try:
        number, position = read_uvarint(value, position)
    except DecodeError as error:
        raise DecodeError(f"Error while reading {what}") from error
    if 0x7FFF < number <= 0x7FFF_FFFF:
        raise DecodeError(f"Value for {what} was too large.")
    # To Kafka a varint of 32 bits is a negative number, of which it takes the lower half.
    short = number & 0xFFFF
    return short - 0x1_0000 if short > 0x7FFF else short, position


def _segment(message: Segment) -> str:
    if message.start_offset < 0:
        raise DecodeError(
            f"Unexpected start offset = {message.start_offset}. StartOffset for a remote segment cannot be negative"
        )
    if message.end_offset < message.start_offset:
        raise DecodeError(
            f"Unexpected end offset = {message.end_offset}. EndOffset for a remote segment cannot be less than"
            f" startOffset = {message.start_offset}"
        )
    epochs = _epochs(message)
    return _braced(
        "RemoteLogSegmentMetadata",
        remoteLogSegmentId=_segment_id(message),
        startOffset=message.start_offset,
        endOffset=message.end_offset,
        brokerId=message.broker_id,
        maxTimestampMs=message.max_timestamp_ms,
        eventTimestampMs=message.event_timestamp_ms,
        segmentLeaderEpochs=epochs,
        segmentSizeInBytes=message.segment_size_in_bytes,
        customMetadata=_custom(message),
        state=_segment_state(message),
        txnIdxEmpty=_java_bool(message.txn_index_empty),
    )


def _update(message: Update) -> str:
    return _braced(
        "RemoteLogSegmentMetadataUpdate",
        remoteLogSegmentId=_segment_id(message),
        customMetadata=_custom(message),
        state=_segment_state(message),
        eventTimestampMs=message.event_timestamp_ms,
        brokerId=message.broker_id,
    )


def _deletion(message: Deletion) -> str:
    if not 0 <= message.remote_partition_delete_state < len(_PARTITION_STATES):
        raise DecodeError("null")  # all that Kafka says of it
    return _braced(
        "RemotePartitionDeleteMetadata",
        topicPartition=_partition(message.topic_id_partition),
        state=_PARTITION_STATES[message.remote_partition_delete_state],
        eventTimestampMs=message.event_timestamp_ms,
        brokerId=message.broker_id,
    )


def _snapshot(message: Snapshot) -> str:
    state = _segment_state(message)
    return _braced(
        "RemoteLogSegmentMetadataSnapshot",
        segmentId=uuid_to_str(message.segment_id),
        startOffset=message.start_offset,
        endOffset=message.end_offset,
        maxTimestampMs=message.max_timestamp_ms,
        segmentLeaderEpochs=_epochs(message),
        segmentSizeInBytes=message.segment_size_in_bytes,
        customMetadata=_custom(message),
        state=state,
        txnIdxEmpty=_java_bool(message.txn_index_empty),
    )


_TEXTS: Final[dict[int, tuple[str, Callable[..., str]]]] = {
    0: ("RemoteLogSegmentMetadataRecord", _segment),
    1: ("RemoteLogSegmentMetadataUpdateRecord", _update),
    2: ("RemotePartitionDeleteMetadataRecord", _deletion),
    3: ("RemoteLogSegmentMetadataSnapshotRecord", _snapshot),
}
"""The message of each type, and how it is shown."""


def _braced(name: str, **fields: object) -> str:
    return f"{name}{{{', '.join(f'{field}={value}' for field, value in fields.items())}}}"


def _segment_id(message: Segment | Update) -> str:
    known = message.remote_log_segment_id
    return _braced(
        "RemoteLogSegmentId",
        topicIdPartition=_partition(known.topic_id_partition),
        id=uuid_to_str(known.id),
    )


def _partition(entry: _Partition) -> str:
    return f"{uuid_to_str(entry.id)}:{entry.name}-{entry.partition}"


def _epochs(message: Segment | Snapshot) -> str:
    """The start offset of each leader epoch, in order; of two entries for one epoch, the later counts."""
    if not message.segment_leader_epochs:
        raise DecodeError("segmentLeaderEpochs can not be null or empty")
    starts = {entry.leader_epoch: entry.offset for entry in message.segment_leader_epochs}
    return f"{{{', '.join(f'{epoch}={starts[epoch]}' for epoch in sorted(starts))}}}"


def _custom(message: Segment | Update | Snapshot) -> str:
    data = message.custom_metadata
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _segment_state(message: Segment | Update | Snapshot) -> str:
    if not 0 <= message.remote_log_segment_state < len(_SEGMENT_STATES):
        raise DecodeError("state can not be null")
    return _SEGMENT_STATES[message.remote_log_segment_state]


def _java_bool(value: bool) -> str:
    return "true" if value else "false"
