"""From committed batches to publishers: what is published, when, and how transactions count."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ApiException
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import MetadataLoader
from ottla.raft.types import CommittedBatch, OffsetAndEpoch
from ottla.wire import messages as m


def feature(name: str, level: int = 1) -> Any:
    return m.FeatureLevelRecord(name=name, feature_level=level)


def batch(base_offset: int, *records: Any, epoch: int = 1, control: int = 0) -> CommittedBatch:
    count = control or len(records)
    return CommittedBatch(base_offset, base_offset + count - 1, epoch, 1000, 100, records)


@pytest.fixture
def published() -> list[MetadataImage]:
    return []


@pytest.fixture
def loader(published: list[MetadataImage]) -> MetadataLoader:
    loader = MetadataLoader()
    loader.add_publisher(lambda delta, image: published.append(image))
    return loader


def test_all_that_a_start_loads_is_published_once(
    loader: MetadataLoader, published: list[MetadataImage]
) -> None:
    loader.handle_commit(
        iter([batch(0, control=1), batch(1, feature("a")), batch(2, feature("b"), feature("c"))])
    )
    assert [(i.offset, i.epoch, sorted(i.features)) for i in published] == [(3, 1, ["a", "b", "c"])]


def test_a_snapshot_at_start_shows_only_together_with_the_log_after_it(
    loader: MetadataLoader, published: list[MetadataImage]
) -> None:
    loader.handle_load_snapshot(OffsetAndEpoch(10, 2), [batch(0, feature("a"), feature("b"))])
    assert published == []
    loader.handle_commit(iter([batch(10, feature("b", 0), epoch=3)]))
    assert [(i.offset, i.epoch, dict(i.features)) for i in published] == [(10, 3, {"a": 1})]


def test_a_snapshot_with_no_log_after_it(loader: MetadataLoader, published: list[MetadataImage]) -> None:
    loader.handle_load_snapshot(OffsetAndEpoch(10, 2), [batch(0, feature("a"))])
    loader.handle_commit(iter([batch(10, control=1, epoch=3)]))
    assert [(i.offset, i.epoch, dict(i.features)) for i in published] == [(10, 3, {"a": 1})]


def test_a_snapshot_that_comes_later_is_published_as_the_difference(published: list[MetadataImage]) -> None:
    loader = MetadataLoader()
    loader.handle_commit([batch(0, feature("a"), feature("b"))])
    deltas: list[MetadataDelta] = []
    loader.add_publisher(lambda delta, image: deltas.append(delta))
    loader.handle_load_snapshot(OffsetAndEpoch(10, 2), [batch(0, feature("b"), feature("c"))])
    assert deltas[-1].changed_features == {"a", "c"}
    assert loader.image.offset == 9


def test_publishers_are_told_in_their_order_and_late_ones_at_once() -> None:
    loader = MetadataLoader()
    published: list[str] = []
    loader.add_publisher(lambda delta, image: published.append("first"))
    loader.add_publisher(lambda delta, image: published.append("second"))
    loader.handle_commit([batch(0, feature("a"))])
    loader.add_publisher(lambda delta, image: published.append("late " + ",".join(delta.changed_features)))
    assert published == ["first", "second", "late a"]


def test_a_transaction_shows_when_it_ends(loader: MetadataLoader, published: list[MetadataImage]) -> None:
    loader.handle_commit([batch(0, feature("a"), m.BeginTransactionRecord(name="t"), feature("b"))])
    assert [(i.offset, sorted(i.features)) for i in published] == [(0, ["a"])]
    loader.handle_commit([batch(3, feature("c"))])
    assert len(published) == 1
    loader.handle_commit([batch(4, m.EndTransactionRecord(), feature("d"))])
    assert [(i.offset, sorted(i.features)) for i in published[1:]] == [(5, ["a", "b", "c", "d"])]


def test_an_aborted_transaction_never_shows(loader: MetadataLoader, published: list[MetadataImage]) -> None:
    loader.handle_commit(
        [batch(0, m.BeginTransactionRecord(), feature("b"), m.AbortTransactionRecord(), feature("c"))]
    )
    assert [(i.offset, sorted(i.features)) for i in published] == [(3, ["c"])]


@pytest.mark.parametrize(
    "records",
    [
        [m.EndTransactionRecord()],
        [m.AbortTransactionRecord()],
        [m.BeginTransactionRecord(), m.BeginTransactionRecord()],
    ],
)
def test_misplaced_transaction_records_are_an_error(loader: MetadataLoader, records: list[Any]) -> None:
    with pytest.raises(ApiException, match="transaction"):
        loader.handle_commit([batch(0, *records)])
