"""Kafka's small text files: offset checkpoints of a log directory, `partition.metadata`, `meta.properties`.

Only formats and single files; the manager decides when to write them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ottla.ids import TopicName
from ottla.log.files import CLEAN_SHUTDOWN_FILE, META_PROPERTIES_FILE, PARTITION_METADATA_FILE
from ottla.log.fs import Fs
from ottla.log.types import TopicPartition
from ottla.wire.uuid import ZERO_UUID, uuid_from_str, uuid_to_str


class CheckpointError(Exception):
    """A checkpoint file has an invalid format."""


def format_checkpoint(rows: Iterable[Sequence[object]]) -> bytes:
    """Return the file: version, number of rows, rows."""
    lines = [" ".join(map(str, row)) for row in rows]
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def parse_checkpoint(data: bytes, columns: int) -> list[list[str]]:
    lines = data.decode("utf-8", "replace").splitlines()
    if len(lines) < 2 or lines[0].strip() != "0":
        raise CheckpointError(f"expected version 0, found {lines[0] if lines else 'nothing'!r}")
    try:
        expected = int(lines[1])
    except ValueError:
        raise CheckpointError(f"expected a number of rows, found {lines[1]!r}") from None
    rows = [line.split() for line in lines[2:]]
    if len(rows) != expected or any(len(row) != columns for row in rows):
        raise CheckpointError(f"expected {expected} rows of {columns} columns")
    return rows


def read_offsets(fs: Fs, path: str) -> dict[TopicPartition, int]:
    """Read an offset checkpoint. A missing or damaged one is empty: recovery does not depend on it."""
    if not fs.exists(path):
        return {}
    try:
        rows = parse_checkpoint(fs.read_bytes(path), 3)
        return {
            TopicPartition(TopicName(topic), int(partition)): int(offset) for topic, partition, offset in rows
        }
    except (CheckpointError, ValueError):
        return {}


def write_offsets(fs: Fs, path: str, offsets: Mapping[TopicPartition, int], *, sync: bool = True) -> None:
    rows = ((tp.topic, tp.partition, offset) for tp, offset in offsets.items())
    fs.write_atomic(path, format_checkpoint(rows), sync=sync)


def write_partition_metadata(fs: Fs, directory: str, topic_id: bytes, *, sync: bool = False) -> None:
    text = f"version: 0\ntopic_id: {uuid_to_str(topic_id)}"
    fs.write_atomic(f"{directory}/{PARTITION_METADATA_FILE}", text.encode(), sync=sync)


def read_partition_metadata(fs: Fs, directory: str) -> bytes:
    """Return the topic id of a partition's directory; zero if a crash damaged the file."""
    text = fs.read_bytes(f"{directory}/{PARTITION_METADATA_FILE}").decode("utf-8", "replace")
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "topic_id":
            try:
                return uuid_from_str(value.strip())
            except ValueError:
                return ZERO_UUID
    return ZERO_UUID


def read_meta_properties(fs: Fs, directory: str) -> dict[str, str] | None:
    """Read `meta.properties` of a log directory; None for an unformatted directory."""
    path = f"{directory}/{META_PROPERTIES_FILE}"
    if not fs.exists(path):
        return None
    found: dict[str, str] = {}
    for line in fs.read_bytes(path).decode("utf-8", "replace").splitlines():
        line = line.strip()
        if line and not line.startswith(("#", "!")):
            key, _, value = line.partition("=")
            found[key.strip()] = value.strip()
    return found


def write_meta_properties(fs: Fs, directory: str, cluster_id: str, node_id: int, directory_id: bytes) -> None:
    text = (
        "#\n"
        f"cluster.id={cluster_id}\n"
        f"directory.id={uuid_to_str(directory_id)}\n"
        f"node.id={node_id}\n"
        "version=1\n"
    )
    fs.write_atomic(f"{directory}/{META_PROPERTIES_FILE}", text.encode())


def write_clean_shutdown(fs: Fs, directory: str, broker_epoch: int) -> None:
    marker = msgspec.json.encode({"version": 0, "brokerEpoch": broker_epoch})
    fs.write_atomic(f"{directory}/{CLEAN_SHUTDOWN_FILE}", marker)


def read_clean_shutdown(fs: Fs, directory: str) -> int | None:
    """Return the broker epoch in the clean-shutdown marker; -1 for a marker without one; None without a marker."""
    path = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
    if not fs.exists(path):
        return None
    try:
        return int(msgspec.json.decode(fs.read_bytes(path))["brokerEpoch"])
    except (msgspec.DecodeError, ValueError, KeyError, TypeError):
        return -1
