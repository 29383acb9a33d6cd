"""The framing of a metadata record inside a log record's value: frame version, type, version, then the body.

The cluster's metadata.version decides the version in which a record is written: a node of an older release must be
able to read it.
"""

from __future__ import annotations

from typing import Final

from ottla.errors import ApiException, ErrorCode
from ottla.metadata.features import (
    CORDONED_LOG_DIRS_FROM,
    DIRECTORY_ASSIGNMENT_FROM,
    ELR_RECORDS_FROM,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    MIGRATION_FROM,
)
from ottla.wire.classes import WireMessage, message_class
from ottla.wire.codec import decode_prefix, encode
from ottla.wire.errors import DecodeError
from ottla.wire.messages import BrokerRegistrationChangeRecord, FeatureLevelRecord

FRAME_VERSION: Final = 1

RECORD_NAMES: Final = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
}
"""The metadata record types by their number in the log."""

_CLASSES: Final[dict[int, type[WireMessage]]] = {
    key: message_class(name) for key, name in RECORD_NAMES.items()
}
_KEYS: Final[dict[type[WireMessage], int]] = {cls: key for key, cls in _CLASSES.items()}

_VERSIONS_SINCE: Final[dict[str, tuple[tuple[int, int], ...]]] = {
    # (metadata.version, record version), newest first; other types have one version only
    "RegisterBrokerRecord": (
        (CORDONED_LOG_DIRS_FROM, 4),
        (DIRECTORY_ASSIGNMENT_FROM, 3),
        (MIGRATION_FROM, 2),
        (0, 1),
    ),
    "PartitionRecord": ((ELR_RECORDS_FROM, 2), (DIRECTORY_ASSIGNMENT_FROM, 1), (0, 0)),
    "PartitionChangeRecord": ((ELR_RECORDS_FROM, 2), (DIRECTORY_ASSIGNMENT_FROM, 1), (0, 0)),
}


def record_version(message: WireMessage, metadata_version: int = LATEST_METADATA_VERSION) -> int:
    """The version in which this record is written at a metadata.version."""
    name = message.NAME
    for since, version in _VERSIONS_SINCE.get(name, ()):
        if metadata_version >= since:
            return version
    if isinstance(message, BrokerRegistrationChangeRecord):
        # As Kafka does: the lowest version that can carry what is set.
        if message.cordoned_log_dirs is not None:
            return 3
        if message.log_dirs:
            return 2
        return 1 if message.in_controlled_shutdown else 0
    return 0


def encode_record(message: WireMessage, metadata_version: int = LATEST_METADATA_VERSION) -> bytes:
    """A metadata record as the value of a log record."""
    key = _KEYS[message.__class__]
    version = record_version(message, metadata_version)
    # All three are below 128, so each unsigned varint is one byte.
    return bytes((FRAME_VERSION, key, version)) + encode(message, version)


def decode_record(buf: bytes | memoryview) -> WireMessage:
    """The message in a log record's value. Raises `DecodeError` for a value that is not a metadata record."""
    if len(buf) < 3:
        raise DecodeError(f"a metadata record takes at least 3 bytes, here are {len(buf)}")
    frame_version, key, version = buf[0], buf[1], buf[2]
    if frame_version != FRAME_VERSION:
        raise DecodeError(f"metadata record with frame version {frame_version}, expected {FRAME_VERSION}")
    cls = _CLASSES.get(key)
    if cls is None:
        raise DecodeError(f"unknown metadata record type {key}")
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise DecodeError(
            f"{cls.NAME} version {version} is not supported: {cls.MIN_VERSION} to {cls.MAX_VERSION} are"
        )
    message, end = decode_prefix(cls, version, buf, 3)
    if end != len(buf):
        raise DecodeError(f"{len(buf) - end} bytes after a {cls.NAME}")
    return message


class MetadataSerde:
    """Encodes records at the metadata.version that the records so far have set."""

    __slots__ = ("metadata_version",)

    def __init__(self, metadata_version: int = LATEST_METADATA_VERSION) -> None:
        self.metadata_version = metadata_version

    def encode(self, message: WireMessage) -> bytes:
        self._watch(message)
        return encode_record(message, self.metadata_version)

    def decode(self, buf: bytes | memoryview) -> WireMessage:
        message = decode_record(buf)
        self._watch(message)
        return message

    def _watch(self, message: WireMessage) -> None:
        if isinstance(message, FeatureLevelRecord) and message.name == METADATA_VERSION:
            if message.feature_level > LATEST_METADATA_VERSION:
                raise ApiException(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"the metadata log is at metadata.version {message.feature_level}, newer than "
                    f"{LATEST_METADATA_VERSION}, the newest that this release knows",
                )
            self.metadata_version = message.feature_level
