"""Builds images from committed records, publishes them in a fixed order, and requests snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ottla.clock import Clock
from ottla.ids import BrokerId
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.records import encode_record
from ottla.metadata.snapshot import image_to_records, written_at
from ottla.metadata.transactions import TransactionFilter
from ottla.raft.driver import RaftDriver
from ottla.raft.types import CommittedBatch, OffsetAndEpoch

Publisher = Callable[[MetadataDelta, MetadataImage], None]
"""Called with what changed (on top of `delta.image`) and the new image."""


class MetadataLoader:
    """Listens to the raft driver, keeps the latest committed image and calls the publishers in their order.

    Publishers are called once per group of commits, and once for everything that a start loads. Records of a metadata
    transaction become visible when it ends, all at once or not at all.
    """

    __slots__ = ("_loading", "_publishers", "_snapshots", "_transactions", "applied_at_ms", "image")

    def __init__(self, snapshots: SnapshotGenerator | None = None) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.applied_at_ms = -1
        """The timestamp of the newest batch in the image; -1 before the first."""
        self._loading: tuple[MetadataDelta, OffsetAndEpoch] | None = None
        self._publishers: list[Publisher] = []
        self._transactions = TransactionFilter()
        self._snapshots = snapshots

    def add_publisher(self, publisher: Publisher) -> None:
        """Call this publisher too, after those added before it; at once if there is an image already."""
        self._publishers.append(publisher)
        if self.image is not EMPTY_IMAGE:
            publisher(MetadataDelta.between(EMPTY_IMAGE, self.image), self.image)

    def handle_commit(self, batches: Iterable[CommittedBatch]) -> None:
        if self._loading is None:
            delta = MetadataDelta(self.image)
            offset, epoch = self.image.offset, self.image.epoch
        else:
            delta, (end, epoch) = self._loading
            offset, self._loading = end - 1, None
        timestamp = size = 0
        for batch in batches:
            for index, record in enumerate(batch.records):
                for effective in self._transactions.feed(record):
                    delta.replay(effective)
                if not self._transactions.active:
                    offset, epoch = batch.base_offset + index, batch.epoch
            if not self._transactions.active:
                offset, epoch = batch.last_offset, batch.epoch
            timestamp, size = batch.timestamp, size + batch.size
        self.applied_at_ms = timestamp or self.applied_at_ms
        if offset == self.image.offset:
            return
        self._publish(delta, delta.apply(offset, epoch))
        if self._snapshots is not None:
            self._snapshots.note(self.image, timestamp, size, whole=not self._transactions.active)

    def handle_load_snapshot(self, snapshot_id: OffsetAndEpoch, batches: Iterable[CommittedBatch]) -> None:
        delta = MetadataDelta(EMPTY_IMAGE)
        for batch in batches:
            delta.replay_all(batch.records)
        self._transactions = TransactionFilter()
        if self.image is EMPTY_IMAGE:
            # At start, publishers must see the snapshot only together with the log that follows it. Otherwise they
            # would treat a topic that the log creates as stray, and one that it deletes as wanted.
            self._loading = delta, snapshot_id
        else:
            image = delta.apply(snapshot_id.offset - 1, snapshot_id.epoch)
            self._publish(MetadataDelta.between(self.image, image), image)

    def handle_leader_change(self, leader_id: BrokerId | None, epoch: int) -> None:
        """Do nothing: the image does not depend on the leader."""

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.image = image
        for publisher in self._publishers:
            publisher(delta, image)


class SnapshotGenerator:
    """Requests a snapshot when enough bytes were committed, or enough time has passed, since the last one."""

    __slots__ = ("_bytes", "_clock", "_driver", "_max_bytes", "_max_interval_s", "_since_s")

    def __init__(self, driver: RaftDriver, clock: Clock, *, max_bytes: int, max_interval_ms: int) -> None:
        """`metadata.log.max.record.bytes.between.snapshots`, `metadata.log.max.snapshot.interval.ms` (0: never)."""
        self._driver = driver
        self._clock = clock
        self._max_bytes = max_bytes
        self._max_interval_s = max_interval_ms / 1000
        self._bytes = 0
        self._since_s = clock.monotonic()

    def note(self, image: MetadataImage, timestamp: int, size: int, *, whole: bool) -> None:
        """The image grew by `size` bytes of records. `whole`: it ends at the end of a batch."""
        self._bytes += size
        now_s = self._clock.monotonic()
        due = self._bytes >= self._max_bytes or (
            self._max_interval_s > 0 and now_s - self._since_s >= self._max_interval_s
        )
        if not (due and whole and self._driver.can_snapshot):
            return
        self._bytes, self._since_s = 0, now_s
        self._driver.snapshot(OffsetAndEpoch(image.offset + 1, image.epoch), _encoded(image), timestamp)


def _encoded(image: MetadataImage) -> Iterator[bytes]:
    metadata_version = written_at(image)
    for record in image_to_records(image):
        yield encode_record(record, metadata_version)
