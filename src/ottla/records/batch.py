"""The record batch of magic 2: its 61-byte header, walking over batches, checksums, reading and building.

The broker reads only the header of most batches; records are decompressed only on demand.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.errors import ApiException, ErrorCode
from ottla.limits import MAX_UNPACKED_BATCH_BYTES
from ottla.records.codecs import Compression, compress, decompress
from ottla.records.crc import crc32c
from ottla.records.record import InvalidRecordError, Record, append_record, iter_raw, value_and_headers

HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""The base offset and the length field, which the length itself does not include."""
MIN_LENGTH = HEADER_SIZE - LOG_OVERHEAD
MAGIC = 2
MAGIC_POSITION = 16
ATTRIBUTES_POSITION = 21
"""The checksum covers everything from here on."""

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

CREATE_TIME = 0
LOG_APPEND_TIME = 1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_OFFSET_AND_LENGTH = struct.Struct(">qi")
_STAMP_OFFSET = struct.Struct(">q")
_STAMP_EPOCH = struct.Struct(">i")
_UNDER_CRC = struct.Struct(">hiqqqhii")

Buffer = bytes | bytearray | memoryview


class CorruptBatchError(ApiException):
    """A batch whose header, length or checksum is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class BatchHeader(NamedTuple):
    """The fields of a batch header in their order on disk, so that one unpack creates it."""

    base_offset: int
    length: int
    """Bytes that follow this field."""
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # Kafka's name wins over tuple.count

    @property
    def size_in_bytes(self) -> int:
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap around after 2**31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> Compression:
        return Compression(self.attributes & CODEC_MASK)

    @property
    def timestamp_type(self) -> int:
        """`CREATE_TIME` or `LOG_APPEND_TIME`."""
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_FLAG else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the cleaner may drop the tombstones and markers of this batch. Stored as the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID


_new_header = tuple.__new__
_unpack_header = _HEADER.unpack_from


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`. Checks only that it is complete: see `check_header`."""
    try:
        return _new_header(BatchHeader, _unpack_header(buf, pos))
    except struct.error:
        raise CorruptBatchError(
            f"a batch header takes {HEADER_SIZE} bytes, {len(buf) - pos} are left"
        ) from None


def check_header(header: BatchHeader) -> None:
    """Raise when the header's own fields cannot be those of a batch of magic 2."""
    if header.magic != MAGIC:
        raise CorruptBatchError(
            f"batch at offset {header.base_offset} has magic {header.magic}, expected {MAGIC}"
        )
    if header.length < MIN_LENGTH:
        raise CorruptBatchError(
            f"batch at offset {header.base_offset} has length {header.length}, less than its own header"
        )


def check_crc(buf: Buffer, pos: int, header: BatchHeader) -> bool:
    """Whether the checksum of the batch at `pos` is right. `buf` must hold the whole batch."""
    view = memoryview(buf)[pos + ATTRIBUTES_POSITION : pos + LOG_OVERHEAD + header.length]
    return bool(crc32c(view) == header.crc)


def iter_batches(buf: Buffer, pos: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Walk over the complete batches between `pos` and `end`, each with its position.

    Stops before an incomplete batch (a read can end inside one). Raises `CorruptBatchError` at an invalid header.
    Does not check checksums.
    """
    if end is None:
        end = len(buf)
    while pos + HEADER_SIZE <= end:
        header = _new_header(BatchHeader, _unpack_header(buf, pos))
        if header.magic != MAGIC or header.length < MIN_LENGTH:
            check_header(header)
        following = pos + LOG_OVERHEAD + header.length
        if following > end:
            return
        yield pos, header
        pos = following


def stamp(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch of the batch at `pos`. The checksum covers neither."""
    _STAMP_OFFSET.pack_into(buf, pos, base_offset)
    _STAMP_EPOCH.pack_into(buf, pos + LOG_OVERHEAD, leader_epoch)


def with_timestamps(
    header: BatchHeader, body: Buffer, timestamp_type: int, max_timestamp: int
) -> BatchHeader:
    """The header with another timestamp type and max timestamp, and the new checksum."""
    attributes = header.attributes & ~LOG_APPEND_TIME_FLAG
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_FLAG
    return with_crc(header._replace(attributes=attributes, max_timestamp=max_timestamp), body)


def with_crc(header: BatchHeader, body: Buffer) -> BatchHeader:
    """The header with the checksum of its other fields and of the body."""
    return header._replace(crc=crc32c(body, crc32c(_UNDER_CRC.pack(*header[5:]))))


def pack_header(header: BatchHeader) -> bytes:
    """The header's 61 bytes."""
    return _HEADER.pack(*header)


def record_bytes(
    buf: Buffer, pos: int, header: BatchHeader, max_output: int = MAX_UNPACKED_BATCH_BYTES
) -> bytes:
    """The records of the batch at `pos` as plain bytes, unpacked up to `max_output` bytes."""
    body = memoryview(buf)[pos + HEADER_SIZE : pos + header.size_in_bytes]
    codec = header.attributes & CODEC_MASK
    if not codec:
        return bytes(body)
    return decompress(codec, body, max_output)


def iter_records(
    buf: Buffer,
    pos: int = 0,
    header: BatchHeader | None = None,
    max_output: int = MAX_UNPACKED_BATCH_BYTES,
) -> Iterator[Record]:
    """The records of the one batch at `pos`, unpacked. Does not check the checksum."""
    if header is None:
        header = read_header(buf, pos)
        check_header(header)
    if pos + header.size_in_bytes > len(buf):
        raise CorruptBatchError(f"batch at offset {header.base_offset} extends beyond the end of the buffer")
    if header.count == 0:
        return
    if header.count < 0:
        raise InvalidRecordError(f"batch at offset {header.base_offset} claims {header.count} records")
    data = record_bytes(buf, pos, header, max_output)
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    for timestamp_delta, offset_delta, key, value_start, length, _, end in iter_raw(data, header.count):
        value, headers = value_and_headers(data, value_start, length, end)
        yield Record(
            base_offset + offset_delta,
            base_timestamp + timestamp_delta if append_time is None else append_time,
            key,
            value,
            headers,
        )


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    append_time: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    is_transactional: bool = False,
    is_control: bool = False,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """One batch of the given records (at least one), with its checksum.

    `base_offset` and `last_offset` default to those of the first and last record. The cleaner passes them to
    keep the offset range of a batch from which it dropped records. With `LOG_APPEND_TIME`, `append_time` is the time.
    """
    items: Sequence[Record] = records if isinstance(records, Sequence) else list(records)
    if not items:
        raise ValueError("a batch needs a record: use build_empty_batch for one without")
    first = items[0]
    if base_offset is None:
        base_offset = first.offset
    if last_offset is None:
        last_offset = items[-1].offset
    base_timestamp = first.timestamp if delete_horizon_ms is None else delete_horizon_ms
    body = bytearray()
    max_timestamp = NO_TIMESTAMP
    for record in items:
        if record.timestamp > max_timestamp:
            max_timestamp = record.timestamp
        append_record(
            body,
            record.timestamp - base_timestamp,
            record.offset - base_offset,
            record.key,
            record.value,
            record.headers,
        )
    if timestamp_type == LOG_APPEND_TIME:
        max_timestamp = append_time
    attributes = (
        compression
        | (LOG_APPEND_TIME_FLAG if timestamp_type == LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_FLAG if is_transactional else 0)
        | (CONTROL_FLAG if is_control else 0)
        | (DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0)
    )
    return assemble(
        compress(compression, body, level) if compression else body,
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(items),
    )


def build_empty_batch(header: BatchHeader) -> bytes:
    """A batch without records that keeps the offset range, producer and epoch of the given one."""
    keep = TRANSACTIONAL_FLAG | CONTROL_FLAG | LOG_APPEND_TIME_FLAG
    return assemble(
        b"",
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        attributes=header.attributes & keep,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.max_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        count=0,
    )


def assemble(
    body: Buffer,
    *,
    base_offset: int,
    partition_leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    count: int,
) -> bytes:
    """A batch of a header with these fields and a body that is already encoded and compressed."""
    under_crc = _UNDER_CRC.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    crc = crc32c(body, crc32c(under_crc))
    return b"".join(
        (
            _OFFSET_AND_LENGTH.pack(base_offset, MIN_LENGTH + len(body)),
            struct.pack(">ibI", partition_leader_epoch, MAGIC, crc),
            under_crc,
            body,
        )
    )
