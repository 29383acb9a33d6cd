"""Batches that a log appends: as they are, from the leader of a partition or from raft, or several of producers.

Pure functions over bytes. `records.validation` checks the batches of producers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.errors import ApiException, ErrorCode
from ottla.log.fs import Buffer
from ottla.log.segment import AppendedBatch
from ottla.log.types import NO_TIMESTAMP, AppendInfo, TopicPartition
from ottla.records.batch import BatchHeader, check_crc, iter_batches, stamp
from ottla.records.validation import ValidatedBatch

ANY_EPOCH = 0x7FFFFFFF


def stamp_batches(records: Buffer, offset: int, leader_epoch: int) -> tuple[bytearray, list[BatchHeader]]:
    """Copy batches and assign them offsets from `offset` on. Raises if the bytes are not whole batches."""
    data = bytearray(records)
    headers: list[BatchHeader] = []
    size = 0
    for position, header in iter_batches(data):
        stamp(data, position, offset, leader_epoch)
        headers.append(header._replace(base_offset=offset, partition_leader_epoch=leader_epoch))
        offset = headers[-1].next_offset
        size = position + header.size_in_bytes
    if not headers or size != len(data):
        raise ApiException(ErrorCode.INVALID_RECORD, f"{len(data)} bytes to append are not whole batches")
    return data, headers


class BatchRun(NamedTuple):
    """Batches of several producers, one after the other, as one write."""

    buffers: list[Buffer]
    batches: list[AppendedBatch]
    infos: list[AppendInfo]
    """The result of each append, once the run is written."""
    size: int
    max_timestamp: int


def lay_out(
    batches: Iterable[ValidatedBatch], offset: int, leader_epoch: int, log_start_offset: int
) -> BatchRun:
    """Give batches of producers without an id their offsets, from `offset` on."""
    buffers: list[Buffer] = []
    appended: list[AppendedBatch] = []
    infos: list[AppendInfo] = []
    total, top = 0, NO_TIMESTAMP
    for batch in batches:
        header = batch.header
        size, timestamp = header.length + 12, header.max_timestamp
        last = offset + header.last_offset_delta
        buffers += batch.buffers(offset, leader_epoch)
        appended.append((size, last, timestamp))
        infos.append(
            AppendInfo(offset, last, batch.log_append_time, log_start_offset, False, size, header.count)
        )
        offset = last + 1
        total += size
        if timestamp > top:
            top = timestamp
    return BatchRun(buffers, appended, infos, total, top)


def below_the_end(topic_partition: object, offset: int, end: int) -> ApiException:
    """The refusal of a mirror's batch whose offset is taken."""
    return ApiException(
        ErrorCode.INVALID_RECORD,
        f"{topic_partition} has ottla.mirror.offsets=true and ends at {end}: a batch at offset {offset} is there "
        "already",
    )


def replicated_batches(
    records: Buffer, topic_partition: TopicPartition, end_offset: int, leader_epoch: int
) -> tuple[memoryview, list[BatchHeader]]:
    """Return the whole batches at the beginning of a leader's response, up to the given leader epoch."""
    view = memoryview(records)
    headers: list[BatchHeader] = []
    size = 0
    for position, header in iter_batches(view):
        if header.partition_leader_epoch > leader_epoch:
            break
        if not check_crc(view, position, header):
            raise ApiException(
                ErrorCode.CORRUPT_MESSAGE,
                f"{topic_partition}: the batch at {header.base_offset} does not match its checksum",
            )
        if header.base_offset < end_offset:
            raise ApiException(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{topic_partition}: the batch at {header.base_offset} lies before the end, {end_offset}",
            )
        end_offset = header.next_offset
        headers.append(header)
        size = position + header.size_in_bytes
    return view[:size], headers
