"""The names of Kafka's files and directories: twenty digits and a suffix, `topic-partition` and its variants."""

from __future__ import annotations

import re

from ottla.ids import TopicName
from ottla.log.types import TopicPartition

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

DELETE_DIR_SUFFIX = "-delete"
FUTURE_DIR_SUFFIX = "-future"
STRAY_DIR_SUFFIX = "-stray"

LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
META_PROPERTIES_FILE = "meta.properties"
LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"

METADATA_TOPIC = "__cluster_metadata"

MAX_NAME_LENGTH = 255

_MARKED_DIR = re.compile(r"^(\S+)-(\d+)\.(\S+)-(delete|future|stray)$")
_PLAIN_DIR = re.compile(r"^(.+)-(\d+)$")


def stem(offset: int) -> str:
    """Return the file name without suffix for a base offset."""
    return f"{offset:020d}"


def offset_of(name: str) -> int | None:
    """Return the offset in a file name, or None if the name does not begin with one."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isdecimal() else None


def marked_dir_name(tp: TopicPartition, unique: str, suffix: str) -> str:
    """Return a partition's directory name marked as deleted, future or stray, cut to the longest valid name."""
    tail = f"-{tp.partition}.{unique}{suffix}"
    return tp.topic[: MAX_NAME_LENGTH - len(tail)] + tail


def parse_dir_name(name: str) -> tuple[TopicPartition, str] | None:
    """Return the partition of a directory and its mark (`-delete`, `-future`, `-stray` or empty), or None."""
    marked = _MARKED_DIR.match(name)
    if marked is not None:
        return TopicPartition(TopicName(marked[1]), int(marked[2])), "-" + marked[4]
    if name.endswith((DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX)):
        return None
    plain = _PLAIN_DIR.match(name)
    if plain is None:
        return None
    return TopicPartition(TopicName(plain[1]), int(plain[2])), ""
