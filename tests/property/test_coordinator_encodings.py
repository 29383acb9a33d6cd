"""The short ways to the bytes of coordinators' records and batches lead to the same bytes as the schema's."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.batching import build_plain, build_transactional
from ottla.coordinator.group.offset import NO_EXPIRY, offset_record
from ottla.coordinator.group.shard import SERDE as GROUP_RECORDS
from ottla.coordinator.transaction.records import from_record, to_record
from ottla.coordinator.transaction.service import SERDE as TRANSACTION_RECORDS
from ottla.coordinator.transaction.state import NO_PRODUCER_ID, TransactionMetadata, TransactionState
from ottla.log.producer_state import _read_marker
from ottla.log.types import TopicPartition
from ottla.records.batch import build_batch, read_header
from ottla.records.codecs import Compression
from ottla.records.control import ControlType, build_end_txn_marker, encode_control
from ottla.records.record import Record
from ottla.wire import messages

NAMES = st.text(st.characters(codec="utf-8"), max_size=40)
LONGS = st.integers(-1, (1 << 63) - 1)
INTS = st.integers(-1, (1 << 31) - 1)
SHORTS = st.integers(0, (1 << 15) - 1)
IDS = st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16))


@given(
    group=NAMES,
    topic=NAMES,
    partition=INTS,
    offset=LONGS,
    epoch=INTS,
    metadata=st.one_of(st.none(), NAMES, st.text("aä", min_size=60, max_size=300)),
    at_ms=LONGS,
    topic_id=IDS,
)
def test_commits(
    group: str,
    topic: str,
    partition: int,
    offset: int,
    epoch: int,
    metadata: str | None,
    at_ms: int,
    topic_id: bytes,
) -> None:
    record = offset_record(
        group,
        topic,
        partition,
        offset=offset,
        leader_epoch=epoch,
        metadata=metadata,
        commit_ms=at_ms,
        expire_ms=NO_EXPIRY,
        topic_id=topic_id,
    )
    assert GROUP_RECORDS.encode(record) == GROUP_RECORDS.encode(dataclasses.replace(record, encoded=None))


TRANSACTIONS = st.builds(
    TransactionMetadata,
    transactional_id=NAMES,
    producer_id=LONGS,
    producer_epoch=SHORTS,
    timeout_ms=INTS,
    state=st.sampled_from(TransactionState),
    partitions=st.frozensets(st.builds(TopicPartition, NAMES, INTS), max_size=200),
    started_ms=LONGS,
    updated_ms=LONGS,
    previous_producer_id=LONGS,
    next_producer_id=LONGS,
    client_version=st.integers(0, 2),
)


@given(txn=TRANSACTIONS, version=st.integers(0, 2))
def test_transactions(txn: TransactionMetadata, version: int) -> None:
    if txn.state is TransactionState.EMPTY:
        txn = txn._replace(partitions=frozenset())
    record = to_record(txn, version)
    key, value = TRANSACTION_RECORDS.encode(record)
    assert (key, value) == TRANSACTION_RECORDS.encode(dataclasses.replace(record, encoded=None))
    read = from_record(TRANSACTION_RECORDS.decode(key, value))
    assert record.state == txn
    if version < 1:
        # Such records hold less, for a coordinator that loads them later.
        txn = txn._replace(
            previous_producer_id=NO_PRODUCER_ID, next_producer_id=NO_PRODUCER_ID, client_version=0
        )
    assert read == txn


PAIRS = st.lists(
    st.tuples(st.binary(max_size=600), st.one_of(st.none(), st.binary(max_size=20_000))),
    min_size=1,
    max_size=600,
)


@given(pairs=PAIRS, now_ms=LONGS, codec=st.sampled_from([Compression.NONE, Compression.GZIP]))
def test_batches(pairs: list[tuple[bytes, bytes | None]], now_ms: int, codec: Compression) -> None:
    records = [Record(index, now_ms, key, value) for index, (key, value) in enumerate(pairs)]
    assert build_plain(pairs, now_ms, codec) == build_batch(records, compression=codec)
    assert build_transactional(pairs, now_ms, codec, 7, 3) == build_batch(
        records, compression=codec, producer_id=7, producer_epoch=3, base_sequence=0, is_transactional=True
    )


@given(commit=st.booleans(), producer=LONGS, epoch=SHORTS, coordinator=INTS, at_ms=LONGS)
def test_markers(commit: bool, producer: int, epoch: int, coordinator: int, at_ms: int) -> None:
    marker = build_end_txn_marker(
        commit=commit,
        producer_id=producer,
        producer_epoch=epoch,
        coordinator_epoch=coordinator,
        timestamp=at_ms,
    )
    key, value = encode_control(
        ControlType.COMMIT if commit else ControlType.ABORT,
        messages.EndTxnMarker(coordinator_epoch=coordinator),
    )
    assert marker == build_batch(
        [Record(0, at_ms, key, value)],
        producer_id=producer,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
    )


@given(kind=st.integers(0, 3), coordinator=INTS, at_ms=LONGS, more=st.booleans(), headers=st.booleans())
def test_markers_are_read_the_same_way(
    kind: int, coordinator: int, at_ms: int, more: bool, headers: bool
) -> None:
    control = ControlType.COMMIT if kind == 1 else ControlType.ABORT
    _, value = encode_control(control, messages.EndTxnMarker(coordinator_epoch=coordinator))
    first = Record(0, at_ms, bytes((0, 0, 0, kind)), value, (("h", b""),) if headers else ())
    records = [first, Record(1, at_ms, b"k", b"v", ())] if more else [first]
    batch = build_batch(records, producer_id=1, producer_epoch=2, is_transactional=True, is_control=True)
    expected = (kind, coordinator, at_ms) if kind in (ControlType.ABORT, ControlType.COMMIT) else None
    assert _read_marker(read_header(batch), batch) == expected
