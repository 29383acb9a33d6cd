"""A partition's log in use: offsets, reading, rolling, truncating, timestamps, followers, failing disks."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from ottla.errors import ApiException, ErrorCode
from ottla.log.fs import OsFs
from ottla.log.types import AppendOrigin, TimestampOffset, WouldBlock
from ottla.records.batch import iter_batches, read_header
from ottla.testing.memfs import MemFs
from unit.log.log_rig import NOW, PATH, Rig, batch, records_of, topic_config


def refused(call: object, *args: object, **options: object) -> ErrorCode:
    with pytest.raises(ApiException) as caught:
        call(*args, **options)  # type: ignore[operator]
    return caught.value.code


def test_batches_get_offsets_and_the_leaders_epoch() -> None:
    rig = Rig()
    assert rig.append("a", "b", epoch=3) == 0
    info = rig.log.append_as_leader(batch("c"), 3, now_ms=NOW)
    assert (info.first_offset, info.last_offset, info.count, info.log_append_time) == (2, 2, 1, -1)
    assert records_of(rig.log) == [(0, "a"), (1, "b"), (2, "c")]
    headers = [header for _, header in iter_batches(rig.log.read(0, 1000).records)]
    assert [(h.base_offset, h.partition_leader_epoch) for h in headers] == [(0, 3), (2, 3)]
    assert rig.log.leader_epochs.entries == ((3, 0),)
    assert rig.names() == ["00000000000000000000.log", "leader-epoch-checkpoint"]


def test_log_append_time_is_told_and_stamped() -> None:
    rig = Rig(message_timestamp_type="LogAppendTime")
    info = rig.log.append_as_leader(batch("a", timestamp=5), 0, now_ms=NOW + 9)
    assert info.log_append_time == NOW + 9
    rig.log.high_watermark = 1
    assert rig.log.max_timestamp() == TimestampOffset(NOW + 9, 0, 0)


def test_a_read_begins_at_the_batch_with_the_offset_and_may_end_amid_one() -> None:
    rig = Rig()
    sizes = []
    for n in range(10):
        raw = batch(f"a{n}", f"b{n}")
        sizes.append(len(raw))
        rig.append_raw(raw)
    size = sizes[0]
    assert set(sizes) == {size}
    piece = rig.log.read(3, size + 10)
    assert read_header(piece.records).base_offset == 2
    assert len(piece.records) == size + 10
    # At least one batch, whatever the limit ...
    assert len(rig.log.read(3, 1).records) == size
    # ... unless the caller has another partition's batch already.
    partial = rig.log.read(3, 10, min_one_batch=False)
    assert (len(partial.records), partial.first_batch_complete) == (10, False)
    assert len(rig.log.read(3, 0, min_one_batch=False).records) == 0


def test_a_read_stays_below_its_upper_offset() -> None:
    rig = Rig()
    for n in range(10):
        rig.append(f"a{n}", f"b{n}")
    size = rig.log.size // 10
    assert len(rig.log.read(0, 1 << 20, upper_offset=4).records) == 2 * size
    assert len(rig.log.read(4, 1 << 20, upper_offset=4).records) == 0
    assert len(rig.log.read(9, 1 << 20, upper_offset=4).records) == 0
    assert len(rig.log.read(20, 1 << 20).records) == 0
    assert refused(rig.log.read, 21, 1) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert refused(rig.log.read, -1, 1) is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("index_interval", [0, 100, 4096])
def test_every_offset_is_found_through_the_index_too(index_interval: int) -> None:
    rig = Rig(index_interval_bytes=index_interval)
    for n in range(400):
        rig.append(*(f"{n}-{i}" for i in range(n % 5 + 1)))
    rig.log.close()
    log = rig.open(clean=True)
    for offset in range(log.log_end_offset):
        first = read_header(log.read(offset, 1).records)
        assert first.base_offset <= offset <= first.last_offset


def test_reads_that_would_wait_for_the_disk_say_so() -> None:
    rig = Rig()
    rig.append("a")
    assert isinstance(rig.fs, MemFs)
    rig.fs.evict(f"{PATH}/00000000000000000000.log")
    with pytest.raises(WouldBlock):
        rig.log.read(0, 100, nowait=True)
    assert len(rig.log.read(0, 100).records)


def test_rolls_by_size() -> None:
    rig = Rig(segment_bytes=300)
    for n in range(10):
        rig.append(f"value {n}")
    assert len(rig.log.segments) > 2
    assert all(segment.size <= 300 for segment in rig.log.segments)
    assert records_of(rig.log) == [(n, f"value {n}") for n in range(10)]
    assert rig.log.size == sum(rig.fs.stat(segment.path).size for segment in rig.log.segments)
    base = rig.log.segments[-1].base_offset
    assert rig.flushes[-1] == base
    assert f"{base:020d}.snapshot" in rig.names()


def test_rolls_by_the_time_of_the_records() -> None:
    rig = Rig(segment_ms=1000)
    rig.append("a", timestamp=NOW)
    rig.append("b", timestamp=NOW + 1000)
    assert len(rig.log.segments) == 1
    rig.append("c", timestamp=NOW + 1001)
    assert [segment.base_offset for segment in rig.log.segments] == [0, 2]


def test_rolls_when_an_index_is_full() -> None:
    rig = Rig(index_interval_bytes=0, segment_index_bytes=24)
    for n in range(8):
        rig.append(f"{n}", timestamp=NOW + n)
    assert [segment.base_offset for segment in rig.log.segments] == [0, 2, 4, 6]


def test_rolls_when_an_offset_no_longer_fits_the_index() -> None:
    rig = Rig()
    rig.append("a")
    rig.log.append_as_follower(batch("b", base_offset=2**31 + 5))
    assert [segment.base_offset for segment in rig.log.segments] == [0, 2**31 + 5]
    assert rig.log.log_end_offset == 2**31 + 6


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    rig = Rig(segment_bytes=100)
    assert refused(rig.append, "x" * 100) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_flush_is_due_after_so_many_messages() -> None:
    rig = Rig(flush_messages=3)
    rig.append("a", "b")
    assert not rig.log.flush_due
    rig.append("c")
    assert rig.log.flush_due and rig.flushes == [], (
        "the client's append is acknowledged after it: left to the caller"
    )
    rig.log.flush()
    assert rig.log.recovery_point == 3 and not rig.log.flush_due


def test_timestamps_are_looked_up_from_the_first_record_that_has_them() -> None:
    rig = Rig(segment_bytes=400, index_interval_bytes=0)
    for n in range(30):
        rig.append(f"{n}", timestamp=NOW + 10 * n)
    for n in (0, 1, 7, 15, 29):
        assert rig.log.offset_for_timestamp(NOW + 10 * n) == TimestampOffset(NOW + 10 * n, n, 0)
        assert rig.log.offset_for_timestamp(NOW + 10 * n - 5) == TimestampOffset(NOW + 10 * n, n, 0)
    assert rig.log.offset_for_timestamp(NOW + 291) is None
    assert rig.log.max_timestamp() == TimestampOffset(NOW + 290, 29, 0)
    rig.log.advance_log_start(7)
    assert rig.log.offset_for_timestamp(0) == TimestampOffset(NOW + 70, 7, 0)
    assert rig.log.earliest() == TimestampOffset(-1, 7, 0)
    assert rig.log.latest() == TimestampOffset(-1, 30, 0)
    assert Rig().log.max_timestamp() is None


def test_timestamps_out_of_order() -> None:
    rig = Rig(index_interval_bytes=0)
    for timestamp in (50, 10, 80, 20, 80):
        rig.append("x", timestamp=NOW + timestamp)
    assert rig.log.offset_for_timestamp(NOW + 15) == TimestampOffset(NOW + 50, 0, 0)
    assert rig.log.offset_for_timestamp(NOW + 60) == TimestampOffset(NOW + 80, 2, 0)
    assert rig.log.max_timestamp() == TimestampOffset(NOW + 80, 2, 0)


@pytest.mark.parametrize("target", [0, 1, 5, 12, 13, 29, 30])
def test_truncation_drops_everything_from_an_offset_on(target: int) -> None:
    rig = Rig(segment_bytes=500, index_interval_bytes=0)
    for n in range(30):
        rig.append(f"{n}", timestamp=NOW + n, epoch=n // 10)
    assert rig.log.truncate_to(target) == (target < 30)
    assert rig.log.log_end_offset == target
    assert records_of(rig.log) == [(n, str(n)) for n in range(target)]
    assert rig.log.high_watermark <= target
    assert rig.log.leader_epochs.latest_epoch == ((target - 1) // 10 if target else -1)
    assert rig.append("again", epoch=9, timestamp=NOW + 99) == target
    assert records_of(rig.log)[-1] == (target, "again")
    assert rig.log.max_timestamp() == TimestampOffset(NOW + 99, target, 9)
    log = rig.open(clean=False)
    assert records_of(log)[-1] == (target, "again")


def test_truncation_amid_a_batch_takes_the_whole_batch() -> None:
    rig = Rig()
    rig.append("a", "b", "c")
    rig.append("d", "e")
    rig.log.truncate_to(4)
    assert rig.log.log_end_offset == 4
    assert records_of(rig.log) == [(0, "a"), (1, "b"), (2, "c")]
    assert rig.append("f") == 4
    assert records_of(rig.log)[-1] == (4, "f")


def test_beginning_anew_at_an_offset() -> None:
    rig = Rig(segment_bytes=300)
    for n in range(10):
        rig.append(str(n))
    rig.log.truncate_fully_and_start_at(1000)
    assert (rig.log.log_start_offset, rig.log.log_end_offset, rig.log.high_watermark) == (1000, 1000, 1000)
    assert rig.append("new") == 1000
    rig.log.close()
    log = rig.open(clean=True)
    assert records_of(log) == [(1000, "new")]


def test_the_start_advances_up_to_the_high_watermark() -> None:
    rig = Rig()
    for n in range(5):
        rig.append(str(n), epoch=n)
    rig.log.high_watermark = 4
    assert refused(rig.log.advance_log_start, 5) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert rig.log.advance_log_start(3)
    assert not rig.log.advance_log_start(2)
    assert refused(rig.log.read, 2, 1) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert records_of(rig.log) == [(3, "3"), (4, "4")]
    assert rig.log.leader_epochs.entries == ((3, 3), (4, 4))


def test_a_follower_appends_what_the_leader_has() -> None:
    leader, follower = Rig(), Rig()
    for n in range(20):
        leader.append(f"a{n}", f"b{n}", epoch=n // 7)
    piece = leader.log.read(0, 1500).records
    info = follower.log.append_as_follower(piece)
    assert info.first_offset == 0
    while follower.log.log_end_offset < leader.log.log_end_offset:
        follower.log.append_as_follower(leader.log.read(follower.log.log_end_offset, 1500).records)
    assert records_of(follower.log) == records_of(leader.log)
    assert follower.log.leader_epochs.entries == leader.log.leader_epochs.entries
    path = f"{PATH}/00000000000000000000.log"
    assert follower.fs.read_bytes(path) == leader.fs.read_bytes(path)


def test_a_follower_refuses_what_does_not_fit() -> None:
    rig = Rig()
    rig.append("a", "b")
    follow = rig.log.append_as_follower
    assert refused(follow, batch("c", base_offset=1)) is ErrorCode.OFFSET_OUT_OF_RANGE
    damaged = bytearray(batch("c", base_offset=2))
    damaged[-1] ^= 1
    assert refused(follow, bytes(damaged)) is ErrorCode.CORRUPT_MESSAGE
    assert follow(batch("c", base_offset=2)[:-1]).count == 0
    assert follow(batch("c", base_offset=2, partition_leader_epoch=5), 4).count == 0
    assert follow(batch("c", base_offset=2, partition_leader_epoch=4), 4).first_offset == 2


def test_the_raft_leader_may_append_several_batches_at_once() -> None:
    rig = Rig()
    rig.append_raw(batch("a") + batch("b", "c", is_control=True), origin=AppendOrigin.RAFT_LEADER, epoch=4)
    rig.append_raw(batch("d"), origin=AppendOrigin.RAFT_LEADER, epoch=4)
    headers = [h for _, h in iter_batches(rig.log.read(0, 1000).records)]
    assert [(h.base_offset, h.last_offset, h.partition_leader_epoch) for h in headers] == [
        (0, 0, 4),
        (1, 2, 4),
        (3, 3, 4),
    ]
    rig.open(clean=False)
    assert rig.log.log_end_offset == 4


def test_new_configuration_counts_at_once() -> None:
    rig = Rig()
    rig.append("x" * 200)
    rig.log.update_config(topic_config(segment_bytes=300, max_message_bytes=200))
    assert refused(rig.append, "x" * 200) is ErrorCode.MESSAGE_TOO_LARGE
    rig.append("y")
    assert len(rig.log.segments) == 2


def test_a_failing_disk_stops_the_log_and_leaves_no_half_batch() -> None:
    rig = Rig()
    rig.append("a")
    assert isinstance(rig.fs, MemFs)
    rig.fs.space = 10
    assert refused(rig.append, "b") is ErrorCode.KAFKA_STORAGE_ERROR
    assert rig.log.failed is not None
    assert rig.log.failed.errno == errno.ENOSPC
    rig.fs.space = None
    assert refused(rig.append, "c") is ErrorCode.KAFKA_STORAGE_ERROR
    assert refused(rig.log.read, 0, 10) is ErrorCode.KAFKA_STORAGE_ERROR
    log = rig.open(clean=False)
    assert records_of(log) == [(0, "a")]
    assert rig.report.truncated_bytes == 0


def test_reads_go_on_in_threads_while_the_log_changes(tmp_path: Path) -> None:
    """Appends, rolls, retention and truncation happen under readers, who see only whole, true batches."""
    rig = Rig(OsFs(), path=f"{tmp_path}/t-0", segment_bytes=2000, retention_bytes=8000)
    rig.append("0")
    stop = threading.Event()
    failures: list[BaseException] = []
    reads = [0]

    def read() -> None:
        while not stop.is_set():
            start = rig.log.log_start_offset
            try:
                piece = rig.log.read(start, 3000, upper_offset=rig.log.high_watermark).records
                for _, header in iter_batches(piece):
                    assert header.base_offset <= rig.log.log_end_offset + 100
                    reads[0] += 1
            except ApiException as e:
                if e.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    failures.append(e)
            except BaseException as e:  # noqa: BLE001 - the thread must report its error
                failures.append(e)
                return

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(1, 500):
        rig.append(f"value {n}")
        if n % 40 == 0:
            rig.log.delete_old_segments(NOW)
        if n % 170 == 0:
            rig.log.truncate_to(rig.log.log_end_offset - 3)
    while not reads[0] and not failures:
        pass  # the readers have not had their turn yet
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert reads[0] > 0
