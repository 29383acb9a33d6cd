"""What the cluster's metadata on a node's disk holds that Ottla could not read, or would treat differently."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.cli.findings import FAIL, OK, WARN, Finding, some
from ottla.config.acted_on import unused_keys
from ottla.config.definitions import TOPIC_KEYS
from ottla.errors import ApiException, ErrorCode
from ottla.log.files import LOG_SUFFIX, METADATA_TOPIC, offset_of
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import KRAFT_VERSION, METADATA_VERSION, METADATA_VERSIONS, SUPPORTED_FEATURES
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.records import MetadataSerde
from ottla.metadata.transactions import TransactionFilter
from ottla.raft.batches import ControlMessages, read_batches
from ottla.raft.snapshots import parse_snapshot_name, snapshot_name
from ottla.raft.types import CommittedBatch
from ottla.raft.voters import SUPPORTED_KRAFT_VERSIONS
from ottla.wire.enums import ConfigResourceType
from ottla.wire.messages import KRaftVersionRecord

_REMOTE: Final = "remote.storage.enable"
_LOCAL_ONLY: Final = ("preallocate", "local.retention.bytes", "local.retention.ms")
_SWITCHES_OFF: Final = ("remote.log.copy.disable", "remote.log.delete.on.disable")


@dataclass(slots=True)
class Metadata:
    """The metadata as the files hold it; `problem` says why it could not be read to its end."""

    image: MetadataImage = EMPTY_IMAGE
    kraft_version: int = 0
    problem: str | None = None


def read_metadata(directory: Path) -> Metadata | None:
    """The newest snapshot and the log after it; None where the directory has no metadata log.

    A controller that runs may be writing: what is incomplete at the end of the last file is left out.
    """
    folder = directory / f"{METADATA_TOPIC}-0"
    if not folder.is_dir():
        return None
    names = sorted(path.name for path in folder.iterdir())
    snapshots = [parsed[0] for name in names if (parsed := parse_snapshot_name(name)) and parsed[1]]
    newest = max(snapshots, default=None)
    logs = [name for name in names if name.endswith(LOG_SUFFIX) and offset_of(name) is not None]
    files = logs if newest is None else [snapshot_name(newest), *logs]
    reader = _Reader(0 if newest is None else newest.offset)
    for name in files:
        try:
            reader.read(folder / name)
        except (ApiException, ValueError) as error:
            # A damaged end of the newest file is a write that is under way, or one that recovery cuts off.
            damaged = isinstance(error, ApiException) and error.code is ErrorCode.CORRUPT_MESSAGE
            if name != files[-1] or not damaged:
                reason = error.message if isinstance(error, ApiException) else str(error)
                return Metadata(reader.image(), reader.kraft_version, f"{name}: {reason}")
    return Metadata(reader.image(), reader.kraft_version)


class _Reader:
    """Replays files into an image. Files are only read."""

    def __init__(self, from_offset: int) -> None:
        self._from_offset = from_offset
        self._delta = MetadataDelta(EMPTY_IMAGE)
        self._serde = MetadataSerde()
        self._transactions = TransactionFilter()
        self._last = (-1, -1)
        self.kraft_version = 0

    def read(self, path: Path) -> None:
        is_log = path.suffix == LOG_SUFFIX
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
                for batch, control in read_batches(data, self._serde, path.name):
                    if is_log and batch.last_offset < self._from_offset:
                        continue
                    self._replay(batch, control)

    def _replay(self, batch: CommittedBatch, control: ControlMessages) -> None:
        for _, message in control:
            if isinstance(message, KRaftVersionRecord):
                self.kraft_version = message.kraft_version
        for record in batch.records:
            for message in self._transactions.feed(record):
                self._delta.replay(message)
        self._last = (batch.last_offset, batch.epoch)

    def image(self) -> MetadataImage:
        return self._delta.apply(*self._last)


def metadata_findings(found: Metadata) -> Iterator[Finding]:
    """What of it Ottla refuses or treats differently."""
    place = f"{METADATA_TOPIC}-0"
    if found.problem is not None:
        yield Finding(
            place, FAIL, f"Ottla cannot read {found.problem}", "is the cluster newer than Kafka 4.3?"
        )
    refused = [*_features(found)]
    yield from refused
    yield from _remote_topics(found.image)
    yield from _topic_keys(found.image)
    yield from _dynamic_keys(found.image)
    if found.problem is None and not refused:
        level = found.image.metadata_version
        version = METADATA_VERSIONS.get(level, "not known yet")
        yield Finding(
            place,
            OK,
            f"metadata.version {version}, kraft.version {found.kraft_version}, "
            f"{len(found.image.topics.by_name)} topics",
        )


def _features(found: Metadata) -> Iterator[Finding]:
    levels = dict(found.image.features)
    for name, level in sorted(levels.items()):
        supported = SUPPORTED_FEATURES.get(name)
        if supported is None or not supported.min <= level <= supported.max:
            span = "not at all" if supported is None else f"{supported.min} to {supported.max}"
            yield Finding(
                name,
                FAIL,
                f"the cluster has level {level}; Ottla supports {span}",
                "finish or undo the upgrade of the cluster with Apache Kafka's kafka-features first"
                if name == METADATA_VERSION
                else f"lower it first: kafka-features.sh downgrade --feature {name}=LEVEL",
            )
    if not SUPPORTED_KRAFT_VERSIONS.min <= found.kraft_version <= SUPPORTED_KRAFT_VERSIONS.max:
        low, high = SUPPORTED_KRAFT_VERSIONS
        text = f"the quorum has level {found.kraft_version}; Ottla supports {low} to {high}"
        yield Finding(KRAFT_VERSION, FAIL, text, "there is no way back from it: wait for a newer Ottla")


def _topics_with(image: MetadataImage, key: str, value: str | None = None) -> list[str]:
    return sorted(
        name
        for (kind, name), settings in image.configs.resources.items()
        if kind == ConfigResourceType.TOPIC and key in settings and value in (None, settings[key])
    )


def _remote_topics(image: MetadataImage) -> Iterator[Finding]:
    tiered = _topics_with(image, _REMOTE, "true")
    if tiered:
        yield Finding(
            _REMOTE,
            FAIL,
            f"{len(tiered)} topics keep older records in remote storage, which Ottla does not read: {some(tiered)}",
            "turn it off for them with remote.log.copy.disable=true, wait until their local logs are whole, or copy "
            "these topics with `ottla mirror`",
        )


def _topic_keys(image: MetadataImage) -> Iterator[Finding]:
    known: set[str] = set()
    for (kind, _), settings in image.configs.resources.items():
        if kind == ConfigResourceType.TOPIC:
            known |= settings.keys()
    for key in sorted(known - {_REMOTE}):
        topics = _topics_with(image, key)
        if key not in TOPIC_KEYS:
            text = f"Kafka 4.3 has no such topic key; Ottla keeps it without effect: {some(topics)}"
            yield Finding(key, WARN, text, "no action is needed")
        elif key in _LOCAL_ONLY or key in _SWITCHES_OFF:
            yield Finding(key, WARN, f"it has no effect; it is set for {some(topics)}", "no action is needed")


def _dynamic_keys(image: MetadataImage) -> Iterator[Finding]:
    for (kind, name), settings in sorted(image.configs.resources.items()):
        if kind == ConfigResourceType.BROKER:
            owner = f"broker {name}" if name else "all brokers"
            for key in unused_keys(settings):
                text = f"it was changed at run time for {owner}; in Ottla it has no effect"
                yield Finding(key, WARN, text, "no action is needed")
