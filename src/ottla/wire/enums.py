"""Kafka's enumerations that travel as numbers in messages and records, one copy for brokers, clients and tools.

Members carry Kafka's names and numbers. A number that this table lacks belongs to a newer Kafka: see `ConfigSource.of`.
"""

from __future__ import annotations

from enum import IntEnum


class CoordinatorType(IntEnum):
    """What a FindCoordinator request asks for."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class IsolationLevel(IntEnum):
    """Whether a reader sees records of transactions that are still open.

    >>> IsolationLevel.READ_COMMITTED.value
    1
    """

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetSpec(IntEnum):
    """Positions of a partition that ListOffsets finds by name, in place of a timestamp.

    >>> OffsetSpec.EARLIEST.value
    -2
    """

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class ElectionType(IntEnum):
    """Which replica an ElectLeaders request accepts: the preferred one, or any that is alive.

    >>> ElectionType.PREFERRED.value
    0
    """

    PREFERRED = 0
    UNCLEAN = 1


class UpgradeType(IntEnum):
    """In which direction an UpdateFeatures request may move a feature's level.

    >>> UpgradeType.SAFE_DOWNGRADE.value
    2
    """

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class ScramMechanism(IntEnum):
    """How SCRAM keeps a password.

    >>> ScramMechanism.SCRAM_SHA_256.value
    1
    """

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def hash_name(self) -> str:
        """The hash function, by hashlib's name.

        >>> ScramMechanism.SCRAM_SHA_512.hash_name
        'sha512'
        """
        return {1: "sha256", 2: "sha512"}[self.value]


# -- configurations


class ConfigResourceType(IntEnum):
    """What a configuration belongs to.

    >>> ConfigResourceType.TOPIC.value
    2
    """

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterConfigOp(IntEnum):
    """What IncrementalAlterConfigs does to a key.

    >>> AlterConfigOp.APPEND.value
    2
    """

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSource(IntEnum):
    """Where a configuration's value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    @classmethod
    def of(cls, number: int) -> ConfigSource:
        """The member for a number from the wire; UNKNOWN for a source newer than this table."""
        return cls(number) if number in cls._value2member_map_ else cls.UNKNOWN


class ConfigType(IntEnum):
    """The type of a configuration's value."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


# -- access control


CLUSTER_NAME = "kafka-cluster"
"""The only resource of the type CLUSTER."""


class ResourceType(IntEnum):
    """The kind of resource that an access control entry is about; ANY is for filters.

    >>> ResourceType.TOPIC.value
    2
    """

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the resource name of an access control entry matches; ANY and MATCH are for filters.

    >>> PatternType.PREFIXED.value
    4
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What an access control entry allows or denies; ANY is for filters.

    >>> AclOperation.READ.value
    3
    """

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(IntEnum):
    """Whether an access control entry allows or denies; ANY is for filters.

    >>> AclPermissionType.ALLOW.value
    3
    """

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3
