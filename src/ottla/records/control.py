"""Control records: records that brokers write for each other, with their type in the key.

End-of-transaction markers are in topics, the others in the metadata log and its snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import Final

from ottla.records.batch import (
    CONTROL_FLAG,
    NO_LEADER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    CorruptBatchError,
    assemble,
    build_batch,
    iter_records,
    read_header,
)
from ottla.records.record import Record, append_record
from ottla.wire import messages
from ottla.wire.classes import WireMessage, message_class
from ottla.wire.codec import decode_prefix, encode

_KEY: Final = Struct(">hh")
_VERSION: Final = Struct(">h")
_KEY_VERSION: Final = 0


class ControlType(IntEnum):
    """The second number of a control record's key; the first is the key's version, 0."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


_MESSAGE_NAMES: Final = {
    ControlType.ABORT: "EndTxnMarker",
    ControlType.COMMIT: "EndTxnMarker",
    ControlType.LEADER_CHANGE: "LeaderChangeMessage",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeaderRecord",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooterRecord",
    ControlType.KRAFT_VERSION: "KRaftVersionRecord",
    ControlType.KRAFT_VOTERS: "VotersRecord",
}
_VALUE_VERSION: Final = 0
"""Kafka 4.3 writes all of them in version 0, and reads them so whatever version field they contain."""


def control_key(control_type: ControlType) -> bytes:
    """The key that makes a record of a control batch one of this type."""
    return _KEY.pack(_KEY_VERSION, control_type)


def parse_control_type(key: bytes | None) -> ControlType:
    """The type by a record's key; a type of a later Kafka is UNKNOWN, and to be skipped."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatchError(f"a control record's key takes {_KEY.size} bytes, this one is {key!r}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatchError(f"a control record's key has version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN


def encode_control(control_type: ControlType, message: WireMessage) -> tuple[bytes, bytes]:
    """Key and value of a control record."""
    value = encode(message, _VALUE_VERSION)
    if control_type in (ControlType.ABORT, ControlType.COMMIT):
        # Only markers have their version in front; the others have it as a field.
        value = _VERSION.pack(_VALUE_VERSION) + value
    return control_key(control_type), value


def decode_control(record: Record) -> tuple[ControlType, WireMessage | None]:
    """Type and message of a control record; the message of an unknown type is None."""
    control_type = parse_control_type(record.key)
    if control_type is ControlType.UNKNOWN:
        return control_type, None
    value = record.value or b""
    start = 0
    if control_type in (ControlType.ABORT, ControlType.COMMIT):
        if len(value) < _VERSION.size or _VERSION.unpack_from(value)[0] < 0:
            raise CorruptBatchError("an end-of-transaction marker has no version")
        start = _VERSION.size
    cls = message_class(_MESSAGE_NAMES[control_type])
    message, _ = decode_prefix(cls, _VALUE_VERSION, value, start)
    return control_type, message


def iter_control(
    buf: Buffer, pos: int = 0, header: BatchHeader | None = None
) -> Iterator[tuple[ControlType, WireMessage | None]]:
    """The control records of the batch at `pos`, decoded."""
    for record in iter_records(buf, pos, header):
        yield decode_control(record)


def build_control_batch(
    entries: Sequence[tuple[ControlType, WireMessage]],
    *,
    base_offset: int,
    timestamp: int,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """A batch of the metadata log or of a snapshot with these control records."""
    records = []
    for index, (control_type, message) in enumerate(entries):
        key, value = encode_control(control_type, message)
        records.append(Record(base_offset + index, timestamp, key, value))
    return build_batch(records, partition_leader_epoch=leader_epoch, is_control=True)


def build_end_txn_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The batch that ends a transaction in one partition."""
    return assemble(
        _end_txn_record(commit, coordinator_epoch),
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        count=1,
    )


@lru_cache(maxsize=256)
def _end_txn_record(commit: bool, coordinator_epoch: int) -> bytes:
    """The record in a marker, which is the same for all transactions of one coordinator epoch."""
    control_type = ControlType.COMMIT if commit else ControlType.ABORT
    key, value = encode_control(control_type, messages.EndTxnMarker(coordinator_epoch=coordinator_epoch))
    body = bytearray()
    append_record(body, 0, 0, key, value)
    return bytes(body)


def end_txn_marker(
    buf: Buffer, pos: int = 0, header: BatchHeader | None = None
) -> tuple[ControlType, int] | None:
    """(ABORT or COMMIT, coordinator epoch) of a marker's batch; None for control batches of other types."""
    if header is None:
        header = read_header(buf, pos)
    if not header.count:
        return None
    control_type, message = next(iter_control(buf, pos, header))
    if not isinstance(message, messages.EndTxnMarker):
        return None
    return control_type, message.coordinator_epoch
