"""Idempotent and transactional producers: duplicates, sequences, epochs, markers, expiry and snapshots."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from ottla.errors import ApiException, ErrorCode
from ottla.log.producer_snapshot import (
    BatchMetadata,
    CorruptSnapshotError,
    ProducerState,
    decode_snapshot,
    encode_snapshot,
)
from ottla.log.types import AbortedTxn, AppendOrigin
from unit.log.log_rig import NOW, Rig, idempotent, marker, records_of, stamped


def refused(rig: Rig, raw: bytes, **options: object) -> ErrorCode:
    with pytest.raises(ApiException) as caught:
        rig.append_raw(raw, **options)
    return caught.value.code


def test_a_repeated_batch_is_answered_with_its_first_offsets() -> None:
    rig = Rig()
    for n in range(6):
        rig.append_raw(idempotent(2 * n, "a", "b"))
    for n in range(1, 6):
        info = rig.log.append_as_leader(idempotent(2 * n, "a", "b"), 0, now_ms=NOW)
        assert (info.first_offset, info.last_offset, info.duplicate) == (2 * n, 2 * n + 1, True)
    assert rig.log.log_end_offset == 12
    # The sixth last is forgotten: it is out of order.
    assert refused(rig, idempotent(0, "a", "b")) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("values", [("a",), ("a", "b", "c")])
def test_a_batch_is_a_duplicate_only_if_its_first_and_last_sequence_are_known(
    values: tuple[str, ...],
) -> None:
    """A batch that begins as a known one and has another length is no copy of it: it must not be acknowledged."""
    rig = Rig()
    rig.append_raw(idempotent(0, "a", "b"))
    assert refused(rig, idempotent(0, *values)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert rig.log.log_end_offset == 2
    # Nor one that ends where a known one ends.
    assert refused(rig, idempotent(1, "b")) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_follow_one_another() -> None:
    rig = Rig()
    rig.append_raw(idempotent(0, "a", "b"))
    assert refused(rig, idempotent(3, "x")) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(rig, idempotent(1, "x")) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    rig.append_raw(idempotent(2, "c"))
    assert [value for _, value in records_of(rig.log)] == ["a", "b", "c"]


def test_a_producer_unknown_here_may_begin_anywhere() -> None:
    rig = Rig()
    rig.append_raw(idempotent(100, "a"))
    rig.append_raw(idempotent(101, "b"))


def test_sequences_wrap_around() -> None:
    rig = Rig()
    top = 2**31 - 1
    rig.append_raw(idempotent(top - 1, "a", "b", "c"))  # top - 1, top, 0
    info = rig.log.append_as_leader(idempotent(top - 1, "a", "b", "c"), 0, now_ms=NOW)
    assert info.duplicate
    rig.append_raw(idempotent(1, "d"))
    rig = Rig()
    rig.append_raw(idempotent(top, "a"))
    rig.append_raw(idempotent(0, "b"))


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    rig = Rig()
    rig.append_raw(idempotent(0, "a", epoch=3))
    assert refused(rig, idempotent(5, "x", epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    rig.append_raw(idempotent(0, "b", epoch=4))
    assert refused(rig, idempotent(1, "x", epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_silent_producers_expire() -> None:
    rig = Rig()
    rig.append_raw(idempotent(0, "a", pid=1))
    rig.replicate(idempotent(0, "b", pid=2, is_transactional=True))
    rig.log.producers.expire(NOW + 86_400_000 - 1)
    assert set(rig.log.producers.active) == {1, 2}
    rig.log.producers.expire(NOW + 86_400_001)
    assert set(rig.log.producers.active) == {2}  # an open transaction keeps its producer


def test_an_open_transaction_holds_the_last_stable_offset() -> None:
    rig = Rig()
    rig.append("plain")
    rig.replicate(idempotent(0, "t", pid=1, is_transactional=True))
    rig.append("more")
    rig.replicate(idempotent(0, "u", pid=2, is_transactional=True))
    assert rig.log.last_stable_offset == 1
    rig.append_raw(marker(1, commit=True), origin=AppendOrigin.COORDINATOR)
    assert rig.log.last_stable_offset == 3
    rig.append_raw(marker(2, commit=False), origin=AppendOrigin.COORDINATOR)
    assert rig.log.last_stable_offset == rig.log.log_end_offset == 6
    assert rig.log.aborted_transactions(0, 6) == [AbortedTxn(2, 3, 5, 6)]
    assert rig.log.aborted_transactions(0, 3) == []


def test_a_finished_transaction_stays_unstable_until_it_is_replicated() -> None:
    rig = Rig()
    rig.replicate(idempotent(0, "t", is_transactional=True))
    rig.log.append_as_leader(marker(7, commit=True), 0, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    assert (rig.log.log_end_offset, rig.log.high_watermark, rig.log.last_stable_offset) == (2, 1, 0)
    rig.log.high_watermark = 2
    assert rig.log.last_stable_offset == 2


def test_the_last_stable_offset_does_not_pass_a_marker_that_is_not_replicated() -> None:
    """The high watermark stands at the marker: the records are replicated, the marker itself is not."""
    rig = Rig()
    rig.log.append_as_follower(stamped(idempotent(0, "t", is_transactional=True), 0, 0))
    rig.log.append_as_leader(marker(7, commit=False), 0, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    rig.log.high_watermark = 1
    assert rig.log.last_stable_offset == 0
    rig.log.high_watermark = 2
    assert rig.log.last_stable_offset == 2


def test_the_index_remembers_how_far_readers_were_held() -> None:
    rig = Rig()
    rig.replicate(idempotent(0, "a", pid=1, is_transactional=True))
    rig.replicate(idempotent(0, "b", pid=2, is_transactional=True))
    rig.append_raw(marker(2, commit=False), origin=AppendOrigin.COORDINATOR)
    assert rig.log.aborted_transactions(0, 3) == [AbortedTxn(2, 1, 2, last_stable_offset=0)]


def test_a_transaction_begins_only_with_the_guard_of_its_verification() -> None:
    """A marker voids the guard: a batch that comes late does not leave an open transaction behind."""
    rig = Rig()
    first = idempotent(0, "a", is_transactional=True)
    assert refused(rig, first) is ErrorCode.INVALID_TXN_STATE
    late = rig.log.producers.start_verification(7, 0, 0, NOW, adds_partitions=False)
    rig.append_raw(marker(7, commit=False), origin=AppendOrigin.COORDINATOR)
    assert refused(rig, first, guard=late) is ErrorCode.INVALID_TXN_STATE
    guard = rig.log.producers.start_verification(7, 0, 0, NOW, adds_partitions=False)
    rig.append_raw(first, guard=guard)
    rig.append_raw(idempotent(1, "b", is_transactional=True))


def test_stale_markers_are_refused() -> None:
    rig = Rig()
    rig.replicate(idempotent(0, "a", epoch=5, is_transactional=True))
    coordinator = AppendOrigin.COORDINATOR
    assert (
        refused(rig, marker(7, epoch=4, commit=True), origin=coordinator) is ErrorCode.INVALID_PRODUCER_EPOCH
    )
    rig.append_raw(marker(7, epoch=5, commit=True, coordinator_epoch=9), origin=coordinator)
    assert (
        refused(rig, marker(7, epoch=5, commit=True, coordinator_epoch=8), origin=coordinator)
        is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    )


def test_markers_of_transaction_version_two_need_a_higher_epoch() -> None:
    rig = Rig()
    rig.replicate(idempotent(0, "a", epoch=5, is_transactional=True))
    options = {"origin": AppendOrigin.COORDINATOR, "transaction_version": 2}
    assert refused(rig, marker(7, epoch=5, commit=True), **options) is ErrorCode.INVALID_PRODUCER_EPOCH
    rig.append_raw(marker(7, epoch=6, commit=True), **options)
    rig.append_raw(marker(7, epoch=6, commit=True), **options)  # a retry of a complete one is let through


def test_plain_batches_are_refused_in_an_open_transaction() -> None:
    rig = Rig()
    rig.replicate(idempotent(0, "a", is_transactional=True))
    assert refused(rig, idempotent(1, "b")) is ErrorCode.INVALID_TXN_STATE


def test_the_snapshot_is_kafkas_version_one() -> None:
    state = ProducerState(77, 3, 4, NOW, 50, [BatchMetadata(9, 59, 2, NOW)])
    data = encode_snapshot([state])
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 77, 3, 9, 59, 2, NOW, 4, 50)
    assert data == struct.pack(">hI", 1, crc32c(body)) + body
    assert decode_snapshot(data) == [state]
    idle = ProducerState(78, 0, -1, NOW)
    assert decode_snapshot(encode_snapshot([idle])) == [idle]


@pytest.mark.parametrize("damage", ["short", "version", "bit", "count"])
def test_a_damaged_snapshot_is_known(damage: str) -> None:
    data = bytearray(encode_snapshot([ProducerState(77)]))
    if damage == "short":
        del data[7:]
    elif damage == "version":
        data[1] = 2
    elif damage == "bit":
        data[20] ^= 4
    else:
        data[9] = 2
        data[2:6] = crc32c(bytes(data[6:])).to_bytes(4, "big")
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(bytes(data))


@pytest.mark.parametrize("clean", [True, False])
def test_producers_and_transactions_survive_a_restart(clean: bool) -> None:
    rig = Rig(segment_bytes=400)
    for n in range(10):
        rig.append_raw(idempotent(n, f"v{n}"))
    rig.replicate(idempotent(0, "open", pid=8, is_transactional=True))
    open_at = rig.log.log_end_offset - 1
    rig.replicate(idempotent(0, "gone", pid=9, is_transactional=True))
    rig.append_raw(marker(9, commit=False), origin=AppendOrigin.COORDINATOR)
    aborted = rig.log.aborted_transactions(0, 100)
    assert len(aborted) == 1
    before = dict(rig.log.producers.active)
    if clean:
        rig.log.close()
    log = rig.open(clean=clean)
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == open_at
    assert log.aborted_transactions(0, 100) == aborted
    assert set(log.producers.active) == set(before)
    for pid, state in before.items():
        now = log.producers.active[pid]
        assert (now.epoch, now.last_sequence, now.last_offset) == (
            state.epoch,
            state.last_sequence,
            state.last_offset,
        )
    # The snapshot keeps the last batch of each producer.
    info = log.append_as_leader(idempotent(9, "v9"), 0, now_ms=NOW)
    assert (info.duplicate, info.first_offset) == (True, 9)


def test_a_damaged_snapshot_is_replaced_by_an_older_one() -> None:
    rig = Rig(segment_bytes=400)
    for n in range(10):
        rig.append_raw(idempotent(n, f"v{n}"))
    rig.log.close()
    newest = max(name for name in rig.names() if name.endswith(".snapshot"))
    rig.fs.write_bytes(f"{rig.path}/{newest}", b"damaged")
    log = rig.open(clean=True)
    assert log.producers.active[7].last_sequence == 9
    assert newest not in rig.names()
