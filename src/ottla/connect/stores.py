"""Where offsets of sources are kept: in a topic, within the transaction of the data, or in Kafka's standalone file."""

from __future__ import annotations

import json
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.settings import ClusterSettings
from ottla.connect.formats import Entry, offset_key, offset_value, parse_offset_key
from ottla.connect.offset_file import read_offset_file, write_offset_file
from ottla.connect.spi import Offsets
from ottla.connect.topic_log import TopicLog, append
from ottla.json_types import Json
from ottla.pipeline.writer import BatchWriter, Grant

_logger = logging.getLogger(__name__)

OffsetChanges = Mapping[str, Mapping[str, Json] | None]
"""New offsets by partition; None resets one."""

_OFFSET_PARTITIONS: Final = 25


def offset_entries(connector: str, changes: OffsetChanges) -> list[Entry]:
    """The records of changed offsets."""
    return [Entry(offset_key(connector, key), offset_value(offset)) for key, offset in changes.items()]


class OffsetStore(ABC):
    """Keeps the offsets of sources. Safe for several threads."""

    topic: str | None = None
    """The topic that offsets are written to within the transaction of the data."""
    partitions: int = 0

    @abstractmethod
    def read(self, connector: str) -> Offsets:
        """The offsets of a connector, as they are at the moment of the call."""

    @abstractmethod
    def write(self, connector: str, changes: OffsetChanges) -> None:
        """Stores offsets outside of a transaction."""

    def close(self) -> None:
        """Closes connections."""


class FileOffsetStore(OffsetStore):
    """Kafka's file: at least once."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._lock = threading.Lock()
        self._entries = read_offset_file(self._path)

    def read(self, connector: str) -> Offsets:
        with self._lock:
            table = _Table()
            for key, value in self._entries.items():
                table.apply(key, value)
            return table.of(connector)

    def write(self, connector: str, changes: OffsetChanges) -> None:
        with self._lock:
            for entry in offset_entries(connector, changes):
                if entry.value is None:
                    self._entries.pop(entry.key, None)
                else:
                    self._entries[entry.key] = entry.value
            write_offset_file(self._path, self._entries)


class TopicOffsetStore(OffsetStore):
    """An offsets topic, which is made where it is missing."""

    def __init__(
        self,
        settings: ClusterSettings,
        topic: str,
        *,
        partitions: int = _OFFSET_PARTITIONS,
        replication: int = 3,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        self.topic = topic
        self.settings = settings
        self._lock = threading.Lock()
        self._table = _Table()
        self._log = TopicLog(settings, topic, self._table.apply)
        self._log.open(partitions, replication, dict(configs or {}))
        self.partitions = self._log.partitions

    def read(self, connector: str) -> Offsets:
        with self._lock:
            self._log.read_to_end()
            return self._table.of(connector)

    def write(self, connector: str, changes: OffsetChanges) -> None:
        assert self.topic is not None
        brokers = Cluster(self.settings)
        try:
            writer = BatchWriter(brokers, Grant(self.settings))
            append(writer, self.topic, self.partitions, offset_entries(connector, changes))
            writer.flush()
        finally:
            brokers.close()

    def close(self) -> None:
        self._log.close()


class _Table:
    """Offsets by connector and partition, from records."""

    def __init__(self) -> None:
        self._offsets: dict[str, Offsets] = {}
        self._skipped = False

    def apply(self, key: bytes, value: bytes | None) -> None:
        found = parse_offset_key(key)
        try:
            offset = json.loads(value) if value is not None else None
        except ValueError:
            found = None
        if found is None or not (offset is None or isinstance(offset, dict)):
            if not self._skipped:
                self._skipped = True
                _logger.warning("a record of the offsets topic is not ours and is skipped: key %r", key[:100])
            return
        connector, partition = found
        if offset is None:
            self._offsets.get(connector, {}).pop(partition, None)
        else:
            self._offsets.setdefault(connector, {})[partition] = offset

    def of(self, connector: str) -> Offsets:
        return dict(self._offsets.get(connector, {}))
