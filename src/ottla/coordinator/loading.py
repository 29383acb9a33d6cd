"""Reads a shard's records back from its log: whole slices are read and decoded in a thread.

As compaction would, a slice keeps only the last plain record of a key, unless each record counts (share state).
Records of transactions are all kept, in their order, with the markers that end the transactions.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.coordinator.partition import CoordinatorPartition
from ottla.coordinator.records import CoordinatorRecord, RecordSerde, UnknownRecordTypeError
from ottla.errors import ApiException, ErrorCode
from ottla.records.batch import BatchHeader, check_crc, iter_batches, iter_records
from ottla.records.control import ControlType, end_txn_marker

_logger = logging.getLogger(__name__)


class Loaded(NamedTuple):
    """A record to replay, or the marker that ends a transaction (`record` None)."""

    offset: int
    producer_id: int
    producer_epoch: int
    record: CoordinatorRecord | None
    commit: bool = False


@dataclass(slots=True)
class Slice:
    """The result of one read."""

    next_offset: int
    items: list[Loaded] = field(default_factory=list)
    records_read: int = 0


def load_slice(
    partition: CoordinatorPartition, serde: RecordSerde, offset: int, end_offset: int, max_bytes: int
) -> Slice:
    """Read and decode records from `offset` on. Runs in a thread."""
    buffer = partition.read(offset, max_bytes)
    loaded = Slice(offset)
    plain: dict[bytes | None, tuple[int, bytes | None]] = {}
    kept: list[Loaded] = []
    for position, header in iter_batches(buffer):
        if header.base_offset >= end_offset:
            break
        loaded.next_offset = header.next_offset
        if not check_crc(buffer, position, header):
            raise ApiException(
                ErrorCode.CORRUPT_MESSAGE,
                f"The batch at offset {header.base_offset} does not match its checksum",
            )
        if header.is_control:
            marker = end_txn_marker(buffer, position, header)
            if marker is not None:
                commit = marker[0] is ControlType.COMMIT
                kept.append(
                    Loaded(header.base_offset, header.producer_id, header.producer_epoch, None, commit)
                )
            continue
        for record in iter_records(buffer, position, header):
            if record.offset < offset:
                continue
            loaded.records_read += 1
            if header.is_transactional or not serde.compacted:
                _keep(
                    kept,
                    serde,
                    record.offset,
                    header if header.is_transactional else None,
                    record.key,
                    record.value,
                )
            else:
                plain.pop(record.key, None)
                plain[record.key] = (record.offset, record.value)
    if loaded.next_offset == offset:
        raise ApiException(ErrorCode.CORRUPT_MESSAGE, f"There is no batch at offset {offset}")
    for key, (record_offset, value) in plain.items():
        _keep(kept, serde, record_offset, None, key, value)
    kept.sort(key=lambda item: item.offset)
    loaded.items = kept
    return loaded


def _keep(
    kept: list[Loaded],
    serde: RecordSerde,
    offset: int,
    header: BatchHeader | None,
    key: bytes | None,
    value: bytes | None,
) -> None:
    try:
        record = serde.decode(key, value)
    except UnknownRecordTypeError as error:
        _logger.warning("Skipped the record at offset %d: %s", offset, error.message)
        return
    producer_id, producer_epoch = (-1, -1) if header is None else (header.producer_id, header.producer_epoch)
    kept.append(Loaded(offset, producer_id, producer_epoch, record))
