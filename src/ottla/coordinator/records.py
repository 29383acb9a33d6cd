"""A coordinator's records and their bytes: the key begins with its type, the value with its version.

The shard that replays the records knows what they mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from ottla.errors import ApiException, ErrorCode
from ottla.wire import messages
from ottla.wire.classes import WireMessage
from ottla.wire.codec import decode_prefix, encode

_INT16: Final = Struct(">h")
_KEY_VERSION: Final = 0

Encoded = tuple[bytes, bytes | None]
"""Key and value."""


class UnknownRecordTypeError(ApiException):
    """A record of a type that this broker does not know: skipped when a shard is loaded."""


@dataclass(slots=True)
class CoordinatorRecord:
    """A record of `__consumer_offsets`, `__transaction_state` or `__share_group_state`. Do not change it.

    `value` None is a tombstone. `version` is the version in which the value is written.
    """

    key: WireMessage
    value: WireMessage | None
    version: int = 0
    encoded: Encoded | None = field(default=None, compare=False)
    """Key and value as bytes, if the creator of the record could encode them more cheaply."""
    state: object = field(default=None, compare=False)
    """What replay takes over, if the creator of the record has it: the value as a state, and what that cannot hold."""


class RecordSerde:
    """The records of one coordinator, by the stems of their names: `RecordSerde(["OffsetCommit", ...])`.

    `compacted`: a record replaces earlier records with the same key.
    """

    __slots__ = ("_types", "compacted")

    def __init__(self, stems: Iterable[str], *, compacted: bool = True) -> None:
        self.compacted = compacted
        self._types: Mapping[int, tuple[type[WireMessage], type[WireMessage]]] = {
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
        """Decode a record. Raises `UnknownRecordTypeError`, or ApiException when the bytes are not a record."""
        if key is None or len(key) < _INT16.size:
            raise ApiException(ErrorCode.CORRUPT_MESSAGE, f"A coordinator record has the key {key!r}")
        (record_type,) = _INT16.unpack_from(key)
        try:
            key_class, value_class = self._types[record_type]
        except KeyError:
            raise UnknownRecordTypeError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"This coordinator has no records of type {record_type}"
            ) from None
        decoded_key, _ = decode_prefix(key_class, _KEY_VERSION, key, _INT16.size)
        if value is None:
            return CoordinatorRecord(decoded_key, None)
        if len(value) < _INT16.size:
            raise ApiException(ErrorCode.CORRUPT_MESSAGE, f"A {value_class.NAME} has no version")
        (version,) = _INT16.unpack_from(value)
        if not value_class.MIN_VERSION <= version <= value_class.MAX_VERSION:
            raise ApiException(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{value_class.NAME} has version {version}; this broker knows versions up to {value_class.MAX_VERSION}",
            )
        decoded_value, _ = decode_prefix(value_class, version, value, _INT16.size)
        return CoordinatorRecord(decoded_key, decoded_value, version)
