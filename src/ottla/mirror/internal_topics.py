"""Writes to the internal topics of a mirror, which it creates where they are missing."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.admin.cluster import Cluster
from ottla.admin.settings import ClusterSettings
from ottla.connect.formats import Entry
from ottla.connect.topic_log import Apply, TopicLog, append
from ottla.pipeline.writer import BatchWriter, Grant


def _ignore(_: bytes, __: bytes | None) -> None:
    pass


class InternalTopic:
    """A compacted topic of one partition. Not for several threads at once."""

    def __init__(self, settings: ClusterSettings, topic: str, replicas: int, apply: Apply = _ignore) -> None:
        self._settings = settings
        self._topic = topic
        self._replicas = max(0, replicas)
        self._brokers = Cluster(settings)
        self._log = TopicLog(settings, topic, apply)
        self._writer: BatchWriter | None = None

    def open(self, *, read: bool = False) -> None:
        """Creates the topic where it is missing; reads it to its end."""
        # As in MirrorMaker 2, one that is there already stays as it is.
        self._log.open(1, self._replicas, {}, any_policy=True)
        if read:
            self._log.read_to_end()

    def write(self, entries: Iterable[Entry]) -> None:
        """Writes records, and waits until they are written."""
        listed = list(entries)
        if not listed:
            return
        if self._writer is None:
            self._writer = BatchWriter(self._brokers, Grant(self._settings))
        try:
            append(self._writer, self._topic, 1, listed)
            self._writer.flush()
        except BaseException:
            self._writer = None
            raise

    def close(self) -> None:
        """Closes connections."""
        self._log.close()
        self._brokers.close()
