"""Batches of the metadata log and of snapshots: builds them from records, and reads records and control messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.errors import ApiException, ErrorCode
from ottla.raft.types import CommittedBatch, RecordSerde
from ottla.records.batch import Buffer, build_batch, check_crc, iter_batches, iter_records
from ottla.records.control import ControlType, build_control_batch, decode_control
from ottla.records.record import Record

if TYPE_CHECKING:
    from ottla.wire.classes import WireMessage

ControlMessages = Sequence[tuple[int, "WireMessage"]]
"""Control messages, each with its offset."""


def data_batch(values: Sequence[bytes], base_offset: int, epoch: int, timestamp: int) -> bytes:
    """One batch of records that are encoded already."""
    return build_batch(
        [Record(base_offset + i, timestamp, None, value) for i, value in enumerate(values)],
        partition_leader_epoch=epoch,
    )


_CONTROL_TYPES = {
    "LeaderChangeMessage": ControlType.LEADER_CHANGE,
    "SnapshotHeaderRecord": ControlType.SNAPSHOT_HEADER,
    "SnapshotFooterRecord": ControlType.SNAPSHOT_FOOTER,
    "KRaftVersionRecord": ControlType.KRAFT_VERSION,
    "VotersRecord": ControlType.KRAFT_VOTERS,
}


def control_batch(control: Sequence[WireMessage], base_offset: int, epoch: int, timestamp: int) -> bytes:
    """One control batch of these messages (LeaderChangeMessage, SnapshotHeaderRecord, VotersRecord ...)."""
    return build_control_batch(
        [(_CONTROL_TYPES[message.NAME], message) for message in control],
        base_offset=base_offset,
        timestamp=timestamp,
        leader_epoch=epoch,
    )


def read_batches(
    buf: Buffer, serde: RecordSerde, source: str
) -> Iterator[tuple[CommittedBatch, ControlMessages]]:
    """The batches in a buffer, each with its control messages; checksums are verified.

    `source` names the file in the error for a corrupt batch.
    """
    for pos, header in iter_batches(buf):
        if not check_crc(buf, pos, header):
            raise ApiException(
                ErrorCode.CORRUPT_MESSAGE,
                f"{source}: the batch at offset {header.base_offset} has a wrong checksum",
            )
        records: list[WireMessage] = []
        control: list[tuple[int, WireMessage]] = []
        for record in iter_records(buf, pos, header):
            if header.is_control:
                _, message = decode_control(record)
                if message is not None:
                    control.append((record.offset, message))
            elif record.value is None:
                raise ApiException(
                    ErrorCode.CORRUPT_MESSAGE, f"{source}: the record at offset {record.offset} has no value"
                )
            else:
                records.append(serde.decode(record.value))
        yield (
            CommittedBatch(
                header.base_offset,
                header.last_offset,
                header.partition_leader_epoch,
                header.max_timestamp,
                header.size_in_bytes,
                records,
            ),
            control,
        )
