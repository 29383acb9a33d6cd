"""A coordinator's records and their bytes: the key begins with its type, the value with its version.

What the records mean is the business of the shard that replays them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

from ottla.errors import ApiException, ErrorCode
from ottla.wire import messages
from ottla.wire.codec import decode_prefix, encode

Message = Any
"""An instance of a message class compiled from the schema table (see `ottla.wire.messages`)."""

_INT16: Final = Struct(">h")
_KEY_VERSION: Final = 0


Encoded = tuple[bytes, bytes | None]


class UnknownRecordTypeError(ApiException):
    """A record of a type that this version does not know: skipped when a shard is loaded."""


@dataclass(slots=True)
class CoordinatorRecord:
    """A key of `__consumer_offsets`, `__transaction_state` or `__share_group_state` with its value. Not to be changed.

    `value` None is a tombstone. `version` is the version that the value is written in.
    """

    key: Message
    value: Message | None
    version: int = 0
    encoded: Encoded | None = field(default=None, compare=False)
    """Key and value as bytes, where whoever made the record had a quicker way to them."""
    state: Any = field(default=None, compare=False)
    """What replay would make of the value, where whoever made the record knows."""


class RecordSerde:
    """The records of one coordinator: `RecordSerde(["OffsetCommit", "GroupMetadata", ...])` by their stems.

    `compacted`: a record makes those before it with the same key needless.
    """

    __slots__ = ("_types", "compacted")

    def __init__(self, stems: Iterable[str], *, compacted: bool = True) -> None:
        self.compacted = compacted
        self._types: Mapping[int, tuple[Any, Any]] = {
            key.API_KEY: (key, getattr(messages, stem + "Value"))
            for stem in stems
            for key in (getattr(messages, stem + "Key"),)
        }

    def encode(self, record: CoordinatorRecord) -> Encoded:
        return record.encoded or (self.key_bytes(record), self.value_bytes(record))

    def key_bytes(self, record: CoordinatorRecord) -> bytes:
        return _INT16.pack(record.key.API_KEY) + encode(record.key, _KEY_VERSION)

    def value_bytes(self, record: CoordinatorRecord) -> bytes | None:
        if record.value is None:
            return None
        return _INT16.pack(record.version) + encode(record.value, record.version)

    def decode(self, key: bytes | None, value: bytes | None) -> CoordinatorRecord:
        """The record of these bytes. Raises `UnknownRecordTypeError`, or ApiException for what is no record at all."""
        if key is None or len(key) < _INT16.size:
            raise ApiException(ErrorCode.CORRUPT_MESSAGE, f"a coordinator record has the key {key!r}")
        (record_type,) = _INT16.unpack_from(key)
        try:
            key_class, value_class = self._types[record_type]
        except KeyError:
            raise UnknownRecordTypeError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"there are no records of type {record_type} here"
            ) from None
        decoded_key, _ = decode_prefix(key_class, _KEY_VERSION, key, _INT16.size)
        if value is None:
            return CoordinatorRecord(decoded_key, None)
        if len(value) < _INT16.size:
            raise ApiException(ErrorCode.CORRUPT_MESSAGE, f"a {value_class.NAME} has no version")
        (version,) = _INT16.unpack_from(value)
        if not value_class.MIN_VERSION <= version <= value_class.MAX_VERSION:
            raise ApiException(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{value_class.NAME} of version {version} is not known here, only up to {value_class.MAX_VERSION}",
            )
        decoded_value, _ = decode_prefix(value_class, version, value, _INT16.size)
        return CoordinatorRecord(decoded_key, decoded_value, version)
