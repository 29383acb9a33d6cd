"""Validates the batches of producers before they are appended, and changes them as the topic's settings require.

`validate_produce` reads only the header and the checksum. If that is not enough, its result is `pending`, and
`finish` (a pure function that can run in a thread) walks the records. The records are walked if:
- the topic is compacted: every record needs a key;
- `compression.type` names another codec than the producer's: the batch is encoded again;
- `message.timestamp.before.max.ms` is set: a header does not contain the lowest timestamp;
- the header's highest timestamp is past `message.timestamp.after.max.ms` (the response lists each bad record), or is
  lower than its base timestamp, or its timestamp type is LogAppendTime, which producers cannot set.
In all other cases the header's highest timestamp is trusted, since the producer's checksum covers it.
"""

from __future__ import annotations

import struct
from enum import IntFlag, auto
from typing import Final, Protocol

import msgspec

from ottla.errors import ApiException, ErrorCode
from ottla.limits import MAX_RECORD_ERRORS, MAX_UNPACKED_PRODUCE_BYTES
from ottla.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    CREATE_TIME,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    MIN_LENGTH,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    CorruptBatchError,
    assemble,
    check_crc,
    pack_header,
    read_header,
    record_bytes,
    with_timestamps,
)
from ottla.records.codecs import COMPRESSION_NAMES, Compression, UnpackError, compress
from ottla.records.record import InvalidRecordError, append_record, iter_raw, value_and_headers

MIRROR_EPOCH: Final = -2
"""The leader epoch by which a mirror marks batches that have to stay at their offsets. Producers send -1 or 0."""
_UNBOUNDED: Final = 2**63 - 1
_MIN_LEGACY_SIZE: Final = 14
"""The smallest valid length in any message format, by which Kafka distinguishes torn from corrupt data."""
_LENGTH: Final = struct.Struct(">i")
_PREFIX: Final = struct.Struct(">qii")
_PREFIX_SIZE: Final = 16
_INLINE_COUNT: Final = 64


class TopicSettings(Protocol):
    """The topic configuration that validation reads. `TopicConfig` implements it."""

    @property
    def cleanup_policy(self) -> frozenset[str]: ...
    @property
    def compression_type(self) -> str: ...
    @property
    def compression_gzip_level(self) -> int: ...
    @property
    def compression_lz4_level(self) -> int: ...
    @property
    def compression_zstd_level(self) -> int: ...
    @property
    def max_message_bytes(self) -> int: ...
    @property
    def message_timestamp_type(self) -> str: ...
    @property
    def message_timestamp_before_max_ms(self) -> int: ...
    @property
    def message_timestamp_after_max_ms(self) -> int: ...
    @property
    def ottla_mirror_offsets(self) -> bool: ...


class ProducePolicy(msgspec.Struct, frozen=True):
    """A topic's settings in the form that the hot path reads, built once per change of the configuration."""

    max_message_bytes: int
    compacted: bool
    timestamp_type: int
    before_max_ms: int
    after_max_ms: int
    codec: Compression | None
    """None keeps the producer's codec."""
    level: int | None
    keeps_own: bool = False
    """These settings never change a batch that the broker itself has just built."""
    mirror_offsets: bool = False
    """Batches come from a mirror, and each stays at the offset that it says."""

    @classmethod
    def of(cls, settings: TopicSettings) -> ProducePolicy:
        codec = COMPRESSION_NAMES.get(settings.compression_type)
        levels = {
            Compression.GZIP: settings.compression_gzip_level,
            Compression.LZ4: settings.compression_lz4_level,
            Compression.ZSTD: settings.compression_zstd_level,
        }
        append_time = settings.message_timestamp_type == "LogAppendTime"
        return cls(
            max_message_bytes=settings.max_message_bytes,
            compacted="compact" in settings.cleanup_policy,
            timestamp_type=LOG_APPEND_TIME if append_time else CREATE_TIME,
            before_max_ms=settings.message_timestamp_before_max_ms,
            after_max_ms=settings.message_timestamp_after_max_ms,
            codec=codec,
            level=None if codec is None else levels.get(codec),
            keeps_own=codec is None
            and not append_time
            and settings.message_timestamp_before_max_ms == _UNBOUNDED
            and settings.message_timestamp_after_max_ms >= 0,
            mirror_offsets=settings.ottla_mirror_offsets,
        )


class RecordValidationError(ApiException):
    """A batch was rejected because of some of its records. Each has its index and an error message."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class Pending(IntFlag):
    """Why the records have to be walked."""

    KEYS = auto()
    TIMESTAMPS = auto()
    CODEC = auto()


_NOTHING: Final = Pending(0)


class ValidatedBatch(msgspec.Struct):
    """One batch to append: as it arrived (a view), or with a changed header or body."""

    header: BatchHeader
    view: Buffer
    """The bytes of the batch. Their header may be outdated: see `header_changed`."""
    policy: ProducePolicy
    now_ms: int
    pending: Pending = _NOTHING
    """Not empty: call `finish` before appending."""
    header_changed: bool = False

    @property
    def size_in_bytes(self) -> int:
        return self.header.length + LOG_OVERHEAD

    @property
    def log_append_time(self) -> int:
        """The time in the response to the producer: the time that the broker set, or -1."""
        return self.now_ms if self.policy.timestamp_type == LOG_APPEND_TIME else NO_TIMESTAMP

    @property
    def offload(self) -> bool:
        """Whether `finish` is so much work that it should run in a thread (after `detach`)."""
        return bool(self.pending) and (
            Pending.CODEC in self.pending
            or bool(self.header.attributes & CODEC_MASK)
            or self.header.count > _INLINE_COUNT
        )

    def detach(self) -> None:
        """Copy the bytes, so that the request's buffer can be reused while the batch waits."""
        self.view = bytes(self.view)

    def buffers(self, base_offset: int, leader_epoch: int) -> tuple[bytes, memoryview]:
        """The bytes to write: the batch with its offset and leader epoch, which the checksum does not cover."""
        if self.header_changed:
            header = self.header._replace(base_offset=base_offset, partition_leader_epoch=leader_epoch)
            return pack_header(header), memoryview(self.view)[HEADER_SIZE:]
        prefix = _PREFIX.pack(base_offset, self.header.length, leader_epoch)
        return prefix, memoryview(self.view)[_PREFIX_SIZE:]


def validate_produce(
    buf: Buffer, policy: ProducePolicy, now_ms: int, *, api_version: int = 13, from_client: bool = True
) -> ValidatedBatch:
    """Check the one batch that a producer sent for a partition, by its header and its checksum.

    Batches of the broker's own coordinators (`from_client=False`) were just built in this process, so their form is
    valid. They can be control batches without a sequence; their records have keys.
    """
    if not from_client and policy.keeps_own:
        header = read_header(buf)
        if header.length + LOG_OVERHEAD > policy.max_message_bytes:
            raise _too_large(header.length + LOG_OVERHEAD, policy.max_message_bytes)
        return ValidatedBatch(header, buf, policy, now_ms)
    header = _only_batch(buf) if from_client else read_header(buf)
    attributes = header.attributes
    codec = attributes & CODEC_MASK
    if codec >= Compression.ZSTD:
        _check_codec(codec, api_version)
    if from_client and (header.base_offset != 0 or policy.mirror_offsets):
        _check_base_offset(header, policy)
    size = header.length + LOG_OVERHEAD
    if size > policy.max_message_bytes:
        raise _too_large(size, policy.max_message_bytes)
    if from_client:
        if not check_crc(buf, 0, header):
            raise CorruptBatchError(f"the batch does not match its checksum of {header.crc:#010x}")
        _check_producer_fields(header, policy)
    view = memoryview(buf)[:size]
    pending = _NOTHING
    if policy.codec is not None and policy.codec != codec and not attributes & CONTROL_FLAG:
        pending |= Pending.CODEC
    if policy.compacted and from_client and not attributes & CONTROL_FLAG:
        pending |= Pending.KEYS
    if attributes & LOG_APPEND_TIME_FLAG:
        pending |= Pending.TIMESTAMPS
    elif policy.timestamp_type == LOG_APPEND_TIME:
        if not pending:
            batch = ValidatedBatch(header, view, policy, now_ms)
            _restamp(batch, now_ms)
            return batch
    elif (
        header.max_timestamp > now_ms + policy.after_max_ms
        or header.max_timestamp < header.base_timestamp
        or policy.before_max_ms != _UNBOUNDED
    ):
        pending |= Pending.TIMESTAMPS
    return ValidatedBatch(header, view, policy, now_ms, pending)


def finish(batch: ValidatedBatch, max_output: int = MAX_UNPACKED_PRODUCE_BYTES) -> ValidatedBatch:
    """Walk the records of a pending batch: check each, and encode the batch again if the settings require it.

    Reads only its argument's bytes. Returns a batch that is ready to append, or raises.
    """
    header = batch.header
    policy = batch.policy
    data = _unpack(batch, max(max_output, policy.max_message_bytes))
    errors = _Errors(batch)
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    in_order = True
    max_timestamp = NO_TIMESTAMP
    need_key = policy.compacted and not header.is_control
    for index, (timestamp_delta, offset_delta, key, _, _, _, _) in enumerate(iter_raw(data, header.count)):
        timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
        if need_key and key is None:
            errors.missing_key(index)
        else:
            errors.check_timestamp(index, timestamp)
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if offset_delta != index and not policy.mirror_offsets:
            in_order = False
    errors.raise_any()
    target = header.attributes & CODEC_MASK
    if Pending.CODEC in batch.pending and policy.codec is not None:
        target = policy.codec
    ready = ValidatedBatch(header, batch.view, policy, batch.now_ms)
    if target != header.attributes & CODEC_MASK or not (in_order or header.is_control):
        _reencode(ready, data if in_order else _in_order(data, header.count), target)
        if ready.size_in_bytes > policy.max_message_bytes:
            raise _too_large(ready.size_in_bytes, policy.max_message_bytes)
    _restamp(ready, batch.now_ms if policy.timestamp_type == LOG_APPEND_TIME else max_timestamp)
    return ready


def _unpack(batch: ValidatedBatch, max_output: int) -> bytes:
    try:
        return record_bytes(batch.view, 0, batch.header, max_output)
    except UnpackError as error:
        if error.code != ErrorCode.CORRUPT_MESSAGE:
            raise
        # The checksum was right: a retry with the same bytes, as clients do after CORRUPT_MESSAGE, cannot help.
        raise _invalid(error.message) from None


def _only_batch(buf: Buffer) -> BatchHeader:
    """The header of the first batch, which must be complete, of magic 2, and the only complete one."""
    total = len(buf)
    if total <= MAGIC_POSITION:
        raise _invalid("a produce request needs one batch for each partition, but this partition has none")
    (length,) = _LENGTH.unpack_from(buf, 8)
    magic = buf[MAGIC_POSITION]
    if length < _MIN_LEGACY_SIZE or magic > MAGIC:
        raise CorruptBatchError(f"no batch has a length of {length} and magic {magic}")
    if LOG_OVERHEAD + length > total:
        raise _invalid(f"the batch is incomplete: it has {total} of {LOG_OVERHEAD + length} bytes")
    if magic != MAGIC:
        raise _invalid(f"batches of magic {magic} are not accepted, only those of magic {MAGIC}")
    if length < MIN_LENGTH:
        raise CorruptBatchError(f"a length of {length} is less than the batch's own header")
    rest = total - LOG_OVERHEAD - length
    if rest > MAGIC_POSITION:
        _check_rest(buf, total - rest)
    return read_header(buf)


def _check_rest(buf: Buffer, pos: int) -> None:
    """An incomplete batch may follow and is dropped, as in Kafka; a complete one may not."""
    (length,) = _LENGTH.unpack_from(buf, pos + 8)
    if length < _MIN_LEGACY_SIZE or buf[pos + MAGIC_POSITION] > MAGIC:
        raise CorruptBatchError(f"the {len(buf) - pos} bytes after the batch are not a batch")
    if pos + LOG_OVERHEAD + length <= len(buf):
        raise _invalid("a produce request may have only one batch for each partition")


def _check_codec(codec: int, api_version: int) -> None:
    if codec > Compression.ZSTD:
        message = f"unknown compression codec {codec}, expected 0 to 4"
        raise ApiException(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)
    if api_version < 7:
        message = f"zstd needs version 7 or later of the Produce API, this is version {api_version}"
        raise ApiException(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)


def _check_base_offset(header: BatchHeader, policy: ProducePolicy) -> None:
    if not policy.mirror_offsets:
        raise _invalid(f"a producer's batch begins at offset 0, this one at {header.base_offset}")
    if header.partition_leader_epoch != MIRROR_EPOCH or header.base_offset < 0:
        raise _invalid("the topic has ottla.mirror.offsets=true: only a mirror writes to it")


def _check_producer_fields(header: BatchHeader, policy: ProducePolicy) -> None:
    holes = policy.mirror_offsets and 0 < header.count <= header.last_offset_delta
    if header.count <= 0 or (header.count != header.last_offset_delta + 1 and not holes):
        raise _invalid(
            f"the batch has {header.count} records, but its last offset delta is {header.last_offset_delta}"
        )
    if header.attributes & CONTROL_FLAG:
        raise _invalid("clients may not write control records")
    if header.producer_id > -1 and header.base_sequence < 0:
        raise _invalid(f"producer {header.producer_id} sent the sequence number {header.base_sequence}")


def _restamp(batch: ValidatedBatch, max_timestamp: int) -> None:
    """Set the topic's timestamp type and the highest timestamp in the header, if it has others."""
    header = batch.header
    timestamp_type = batch.policy.timestamp_type
    if header.timestamp_type != timestamp_type or header.max_timestamp != max_timestamp:
        body = memoryview(batch.view)[HEADER_SIZE:]
        batch.header = with_timestamps(header, body, timestamp_type, max_timestamp)
        batch.header_changed = True


def _reencode(batch: ValidatedBatch, data: bytes, codec: int) -> None:
    header = batch.header
    batch.view = assemble(
        compress(codec, data, batch.policy.level) if codec else data,
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        attributes=header.attributes & ~CODEC_MASK | codec,
        last_offset_delta=header.count - 1,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        count=header.count,
    )
    batch.header = read_header(batch.view)


def _in_order(data: bytes, count: int) -> bytes:
    """The same records numbered from 0: some old clients number them differently, which Kafka accepts."""
    out = bytearray()
    for index, (timestamp_delta, _, key, start, length, _, end) in enumerate(iter_raw(data, count)):
        value, headers = value_and_headers(data, start, length, end)
        append_record(out, timestamp_delta, index, key, value, headers)
    return bytes(out)


class _Errors:
    """Collects the errors of single records. A wrong timestamp determines the code of the whole batch."""

    __slots__ = ("code", "found", "highest", "lowest", "policy", "stamped_by_producer", "total")

    def __init__(self, batch: ValidatedBatch) -> None:
        self.policy = batch.policy
        self.lowest = batch.now_ms - batch.policy.before_max_ms
        self.highest = batch.now_ms + batch.policy.after_max_ms
        self.stamped_by_producer = batch.header.timestamp_type == LOG_APPEND_TIME
        self.code = ErrorCode.INVALID_RECORD
        self.found: list[tuple[int, str]] = []
        self.total = 0

    def missing_key(self, index: int) -> None:
        self._add(index, "a record without a key cannot go into a compacted topic")

    def check_timestamp(self, index: int, timestamp: int) -> None:
        if self.policy.timestamp_type == CREATE_TIME and timestamp != NO_TIMESTAMP:
            if not self.lowest <= timestamp <= self.highest:
                self.code = ErrorCode.INVALID_TIMESTAMP
                self._add(index, f"timestamp {timestamp} is not between {self.lowest} and {self.highest}")
        elif self.stamped_by_producer:
            self.code = ErrorCode.INVALID_TIMESTAMP
            self._add(index, "a producer may not set the timestamp type LogAppendTime")

    def _add(self, index: int, message: str) -> None:
        self.total += 1
        if len(self.found) < MAX_RECORD_ERRORS:
            self.found.append((index, message))

    def raise_any(self) -> None:
        if self.found:
            index, message = self.found[0]
            text = f"{self.total} of the batch's records were rejected; record {index}: {message}"
            raise RecordValidationError(self.code, text, self.found)


def _invalid(message: str) -> InvalidRecordError:
    return InvalidRecordError(message)


def _too_large(size: int, limit: int) -> ApiException:
    message = f"the batch of {size} bytes is larger than the topic's max.message.bytes of {limit}"
    return ApiException(ErrorCode.MESSAGE_TOO_LARGE, message)
