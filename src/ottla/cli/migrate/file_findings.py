"""What a node's directories hold that Ottla would refuse or treat differently. Files are only read.

It works while Apache Kafka runs on the directories: a file that disappears meanwhile was rolled or deleted.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla.cli.findings import FAIL, OK, WARN, Finding, some
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiException
from ottla.log.files import (
    CLEAN_SHUTDOWN_FILE,
    CLEANED_SUFFIX,
    CLEANER_OFFSET_FILE,
    DELETED_SUFFIX,
    HIGH_WATERMARK_FILE,
    LEADER_EPOCH_FILE,
    LOCK_FILE,
    LOG_START_FILE,
    LOG_SUFFIX,
    META_PROPERTIES_FILE,
    METADATA_TOPIC,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    offset_of,
    parse_dir_name,
)
from ottla.log.fs import OsFs
from ottla.log.log_dir import LogDir
from ottla.log.segment_recovery import begins_with_old_format
from ottla.log.types import TopicPartition
from ottla.raft.snapshots import BOOTSTRAP_FILE, parse_snapshot_name
from ottla.records.batch import HEADER_SIZE, MAGIC, read_header
from ottla.wire.uuid import ZERO_UUID

_TOP_FILES: Final = {
    *(META_PROPERTIES_FILE, LOCK_FILE, CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE, LOG_START_FILE),
    *(HIGH_WATERMARK_FILE, CLEANER_OFFSET_FILE, BOOTSTRAP_FILE, "lost+found", ".DS_Store"),
}
_REMOTE_CACHE: Final = "remote-log-index-cache"
_PARTITION_FILES: Final = {LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, "quorum-state"}
_PARTITION_SUFFIXES: Final = (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
_LOCK_FIELDS: Final = struct.Struct("hhqqi4x")
"""Linux's `struct flock` on 64 bits: type, whence, start, length, process."""

Progress = Callable[[Iterable[tuple[str, TopicPartition]], int], Iterable[tuple[str, TopicPartition]]]
"""Passes work on, and shows how much of it is done."""


@dataclass(slots=True)
class _Seen:
    """What the directories of partitions hold."""

    segments: int = 0
    old: list[str] = field(default_factory=list)
    """Segments of the message formats before 2."""
    foreign: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def directory_findings(config: BrokerConfig, progress: Progress) -> Iterator[Finding]:
    """All findings about the node's directories."""
    paths = sorted({*config.log_dirs, config.metadata_log_dir})
    directories = [LogDir(OsFs(), path.rstrip("/") or "/") for path in paths]
    usable: list[LogDir] = []
    for directory in directories:
        try:
            directory.inspect(None, config.node_id)
        except ApiException as error:
            yield Finding(
                directory.path, FAIL, error.message, "see which node and cluster this directory is of"
            )
            continue
        found = list(_formatted(directory))
        yield from found
        if directory.cluster_id is not None:
            usable.append(directory)
    yield from _together(usable)
    for directory in usable:
        yield from _access(directory.path)
        yield from _names(directory.path)
    yield from _partitions(config, usable, progress)


def _formatted(directory: LogDir) -> Iterator[Finding]:
    if directory.cluster_id is None:
        yield Finding(
            directory.path,
            FAIL,
            "it is not formatted, or missing: this is not a directory that a node has used",
            "see log.dirs and metadata.log.dir; a node that moves in needs the directories of Apache Kafka",
        )
    elif directory.directory_id == ZERO_UUID:
        yield Finding(
            directory.path,
            WARN,
            f"{META_PROPERTIES_FILE} has no directory.id: Ottla adds one, as Apache Kafka 3.7 and later do",
            "no action is needed",
        )


def _together(directories: list[LogDir]) -> Iterator[Finding]:
    clusters = sorted({directory.cluster_id or "" for directory in directories})
    if len(clusters) > 1:
        text = f"they are of different clusters: {', '.join(clusters)}"
        yield Finding("log.dirs", FAIL, text, "name only the directories of this node's cluster")
    ids = [directory.directory_id for directory in directories if directory.directory_id != ZERO_UUID]
    if len(set(ids)) < len(ids):
        text = "two directories have the same directory.id: one is a copy of the other"
        yield Finding("log.dirs", FAIL, text, "remove the copy from log.dirs")


def _access(path: str) -> Iterator[Finding]:
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        owner = os.stat(path).st_uid
        yield Finding(
            path,
            FAIL,
            f"user {os.geteuid()} may not write to it; its owner is user {owner}",
            "run the check, and later Ottla, as the user that runs Apache Kafka",
        )
    holder = _lock_holder(f"{path}/{LOCK_FILE}")
    if holder:
        yield Finding(path, OK, f"process {holder} runs on it", "stop it before you start Ottla on it")
    elif not os.path.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}"):
        yield Finding(
            path,
            WARN,
            "no process runs on it, and the last one did not stop cleanly: Ottla checks its logs at the start",
            "no action is needed; the start takes longer",
        )


def _lock_holder(path: str) -> int:
    """The process that holds Java's lock on a file; 0 if there is none, or where that cannot be seen."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        with open(path, "rb") as file:
            asked = _LOCK_FIELDS.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = fcntl.fcntl(file, fcntl.F_GETLK, asked)
    except OSError:
        return 0
    kind, _, _, _, pid = _LOCK_FIELDS.unpack(answer)
    return 0 if kind == fcntl.F_UNLCK else max(int(pid), 0)


def _names(path: str) -> Iterator[Finding]:
    for entry in sorted(os.scandir(path), key=lambda each: each.name):
        name = entry.name
        if name == _REMOTE_CACHE:
            text = "Apache Kafka's cache of indexes in remote storage; Ottla does not use it"
            yield Finding(f"{path}/{name}", WARN, text, "see the findings about remote storage")
        elif name in _TOP_FILES or name.endswith(".tmp"):
            continue
        elif not entry.is_dir() or parse_dir_name(name) is None:
            text = "Kafka has no file of this name; Ottla leaves it alone"
            yield Finding(f"{path}/{name}", WARN, text, "no action is needed")


def _partitions(config: BrokerConfig, directories: list[LogDir], progress: Progress) -> Iterator[Finding]:
    places: dict[TopicPartition, str] = {}
    for directory in directories:
        for name in sorted(os.listdir(directory.path)):
            parsed = parse_dir_name(name)
            if parsed is None or parsed[1] or not os.path.isdir(f"{directory.path}/{name}"):
                continue
            here = f"{directory.path}/{name}"
            if parsed[0] in places and parsed[0].topic != METADATA_TOPIC:
                text = f"{parsed[0]} is also in {places[parsed[0]]}: Ottla does not start"
                yield Finding(here, FAIL, text, "remove the older of the two")
            places[parsed[0]] = here
    seen = _Seen()
    for path, partition in progress([(path, tp) for tp, path in places.items()], len(places)):
        _look_into(path, partition, seen)
    if seen.old:
        yield Finding(
            "message format",
            FAIL,
            f"{len(seen.old)} segments hold messages of format 0 or 1, which Ottla does not read: {some(seen.old)}",
            "let retention delete them, or copy the topic into a new one with Apache Kafka's own clients",
        )
    for name in seen.foreign[:10]:
        yield Finding(
            name, WARN, "Kafka has no file of this name; Ottla leaves it alone", "no action is needed"
        )
    for name in seen.unreadable[:10]:
        yield Finding(name, FAIL, "it cannot be read", "run the check as the user that runs Apache Kafka")
    if directories and not seen.old and not seen.unreadable:
        count = len([tp for tp in places if tp.topic != METADATA_TOPIC])
        text = f"{count} partitions with {seen.segments} segments of message format {MAGIC}"
        yield Finding(", ".join(config.log_dirs), OK, text)


def _look_into(path: str, partition: TopicPartition, seen: _Seen) -> None:
    for name in sorted(os.listdir(path)):
        if offset_of(name) is None:
            if name not in _PARTITION_FILES and not name.endswith(".tmp"):
                seen.foreign.append(f"{path}/{name}")
        elif name.endswith(LOG_SUFFIX):
            seen.segments += partition.topic != METADATA_TOPIC
            try:
                if _is_old(Path(path, name)):
                    seen.old.append(f"{path}/{name}")
            except FileNotFoundError:
                continue
            except OSError:
                seen.unreadable.append(f"{path}/{name}")
        elif not name.endswith(_PARTITION_SUFFIXES) and parse_snapshot_name(name) is None:
            seen.foreign.append(f"{path}/{name}")


def _is_old(path: Path) -> bool:
    """Whether a segment begins with a message of format 0 or 1. Formats only rise within a segment."""
    with path.open("rb") as file:
        start = file.read(HEADER_SIZE)
        if len(start) < HEADER_SIZE:
            return False
        fd = file.fileno()
        return begins_with_old_format(
            read_header(start, 0), os.fstat(fd).st_size, lambda size, position: os.pread(fd, size, position)
        )
