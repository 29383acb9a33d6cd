"""Compaction of a real log: what stays, when it happens, and what happens when the log changes under it."""

import asyncio
import logging
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from ottla.clock import SystemClock
from ottla.errors import ApiException, ErrorCode
from ottla.log.checkpoints import read_offsets
from ottla.log.cleaner.log_cleaner import CleanerConfig, LogCleaner
from ottla.log.cleaner.selection import judge
from ottla.log.cleaner.throttler import CleaningAbortedError, Throttler
from ottla.log.fs import OsFs
from ottla.log.types import AbortedTxn
from ottla.records.batch import iter_batches
from ottla.records.codecs import Compression
from unit.log.cleaner.cleaner_rig import Queue, Rig, topic_config


@pytest.fixture
def rig(tmp_path):
    return Rig(OsFs(), str(tmp_path))


def test_the_last_value_of_every_key_stays_at_its_offset(rig):
    rig.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    rig.put((b"a", b"2"))
    rig.roll()
    rig.put((b"b", b"2"))
    rig.roll()
    rig.put((b"a", b"3"))
    rig.clean()
    assert rig.values() == {b"a": b"3", b"b": b"2", b"c": b"1"}
    assert rig.offsets() == [2, 3, 4, 5]
    assert rig.log.log_end_offset == 6


def test_the_active_segment_is_never_touched(rig):
    for value in (b"1", b"2", b"3"):
        rig.put((b"a", value))
    rig.clean()
    assert rig.offsets() == [0, 1, 2]
    rig.roll()
    rig.put((b"a", b"4"))
    rig.clean()
    assert rig.offsets() == [2, 3]


def test_small_segments_become_one_and_no_leftovers_stay(rig):
    for index in range(6):
        rig.put((b"k%d" % index, b"v"))
        rig.roll()
    rig.clean()
    assert [segment.base_offset for segment in rig.log.segments] == [0, 6]
    names = rig.files()
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert "00000000000000000000.log" in names
    assert rig.values() == {b"k%d" % index: b"v" for index in range(6)}


def test_segments_grow_no_larger_than_configured(tmp_path):
    rig = Rig(OsFs(), str(tmp_path), topic_config(internal_segment_bytes=1000))
    for index in range(40):
        rig.put((b"k%d" % index, b"v" * 100))
    before = len(rig.log.segments)
    for index in range(40):
        rig.put((b"k%d" % index, b"w" * 10))
    rig.clean()
    rig.clean()
    assert all(segment.size <= 1000 for segment in rig.log.segments)
    assert before < len(rig.log.segments)
    assert rig.values() == {b"k%d" % index: b"w" * 10 for index in range(40)}


def test_cleaning_waits_for_the_dirty_ratio(tmp_path):
    rig = Rig(OsFs(), str(tmp_path), topic_config(min_cleanable_dirty_ratio=0.5))
    rig.put(*((b"k%d" % index, b"v" * 50) for index in range(20)))
    rig.roll()
    rig.clean()
    assert rig.cleaner.checkpoint(rig.tp) == 20
    rig.put((b"k0", b"new"))
    rig.roll()
    rig.clean()
    assert rig.cleaner.checkpoint(rig.tp) == 20
    rig.put(*((b"k%d" % index, b"w" * 60) for index in range(20)))
    rig.roll()
    rig.clean()
    assert rig.cleaner.checkpoint(rig.tp) == 41
    assert len(rig.offsets()) == 20


def test_records_younger_than_the_minimum_lag_stay(tmp_path):
    rig = Rig(OsFs(), str(tmp_path), topic_config(min_compaction_lag_ms=10_000))
    rig.put((b"a", b"1"), (b"a", b"2"))
    rig.roll()
    rig.clock.advance_ms(8_000)
    rig.put((b"a", b"3"), (b"a", b"4"))
    rig.roll()
    rig.clean()
    assert rig.offsets() == [0, 1, 2, 3]
    rig.clock.advance_ms(5_000)
    rig.clean()
    assert rig.offsets() == [1, 2, 3]
    rig.clock.advance_ms(10_000)
    rig.clean()
    assert rig.offsets() == [3]


def test_records_older_than_the_maximum_lag_are_cleaned_however_clean_the_log_is(tmp_path):
    rig = Rig(
        OsFs(), str(tmp_path), topic_config(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=10_000)
    )
    rig.put((b"a", b"1"), (b"a", b"2"))
    rig.roll()
    rig.clean()
    assert rig.offsets() == [0, 1]
    rig.clock.advance_ms(10_001)
    rig.clean()
    assert rig.offsets() == [1]


def test_nothing_beyond_the_last_stable_offset_is_cleaned(rig):
    rig.put((b"a", b"1"), (b"a", b"2"))
    rig.roll()
    open_from = rig.put((b"x", b"1"), producer=5, txn=True)
    rig.put((b"a", b"3"))
    rig.roll()
    rig.put((b"a", b"4"))
    rig.roll()
    assert rig.log.last_stable_offset == open_from
    rig.clean()
    assert rig.offsets() == [1, 2, 3, 4]
    rig.end_txn(5, commit=True)
    rig.roll()
    rig.clean()
    assert rig.values().keys() == {b"a", b"x", b"\0\0\0\1"}
    assert rig.offsets() == [2, 4, 5]


def test_tombstones_go_one_retention_after_the_cleaning_that_met_them(rig):
    rig.put((b"a", b"1"), (b"b", b"1"))
    rig.put((b"a", None))
    rig.roll()
    rig.clean()
    assert rig.values() == {b"a": None, b"b": b"1"}
    rig.clock.advance_ms(2_000)
    rig.put((b"c", b"1"))
    rig.roll()
    rig.clean()
    assert rig.values() == {b"b": b"1", b"c": b"1"}


def test_aborted_records_go_and_the_transaction_index_follows(rig):
    rig.put((b"a", b"good"))
    rig.put((b"a", b"aborted"), producer=7, txn=True)
    aborted = rig.end_txn(7, commit=False)
    rig.put((b"b", b"good"), producer=8, txn=True)
    rig.end_txn(8, commit=True)
    rig.roll()
    assert rig.log.aborted_transactions(0, 100) == [AbortedTxn(7, 1, 2, 3)]
    rig.clean()
    assert rig.values()[b"a"] == b"good"
    assert rig.log.aborted_transactions(0, 100) == [AbortedTxn(7, 1, 2, 3)]
    assert aborted in rig.offsets()

    # The producer's last batch stays, and the marker with it, for as long as the producer is remembered.
    rig.clock.advance_ms(86_400_001)
    rig.log.producers.expire(rig.clock.now_ms())
    for _ in range(3):
        rig.clock.advance_ms(2_000)
        rig.put((b"z", b"%d" % rig.log.log_end_offset))
        rig.roll()
        rig.clean()
    assert rig.log.aborted_transactions(0, 100) == []
    assert aborted not in rig.offsets()
    assert rig.values()[b"b"] == b"good"


def test_a_producer_continues_after_cleaning_and_recovery(rig):
    rig.put((b"a", b"1"), producer=3)
    rig.put((b"a", b"2"), producer=3)
    rig.roll()
    rig.put((b"a", b"3"))
    rig.roll()
    rig.clean()
    assert rig.offsets() == [2]
    for name in rig.files():
        if name.endswith(".snapshot"):
            rig.fs.remove(f"{rig.directory}/{rig.tp}/{name}")
    rig.log.close_files()
    rig.open()
    with pytest.raises(ApiException) as caught:
        rig.put((b"a", b"9"), producer=3, base_sequence=7)
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert rig.put((b"a", b"2"), producer=3, base_sequence=1) == 1
    assert rig.put((b"a", b"4"), producer=3, base_sequence=2) == 3


def test_a_map_too_small_for_all_keys_takes_several_rounds(tmp_path):
    rig = Rig(OsFs(), str(tmp_path), dedupe_buffer_bytes=192 * 10)
    for round_number in range(3):
        for index in range(0, 60, 3):
            rig.put(*((b"k%d" % (index + n), b"%d" % round_number) for n in range(3)))
        rig.roll()
    rig.clean()
    assert rig.cleaner.checkpoint(rig.tp) == 180
    assert rig.values() == {b"k%d" % index: b"2" for index in range(60)}
    assert len(rig.offsets()) == 60


def test_the_checkpoint_survives_a_restart_and_nonsense_in_it_is_put_right(rig):
    rig.put((b"a", b"1"), (b"a", b"2"))
    rig.roll()
    rig.clean()
    path = f"{rig.directory}/cleaner-offset-checkpoint"
    assert read_offsets(rig.fs, path) == {rig.tp: 2}
    assert rig.new_cleaner().checkpoint(rig.tp) == 2

    rig.fs.write_bytes(path, b"0\n1\nt 0 99\n")
    rig.cleaner = rig.new_cleaner()
    rig.clean()
    assert rig.cleaner.checkpoint(rig.tp) == 2


def test_a_truncated_log_is_dirty_again_from_its_new_end(rig):
    rig.put((b"a", b"1"))
    rig.roll()
    rig.put((b"a", b"2"))
    rig.roll()
    rig.clean()
    assert rig.cleaner.checkpoint(rig.tp) == 2
    rig.cleaner.truncated(rig.tp, 1)
    assert rig.cleaner.checkpoint(rig.tp) == 1
    assert read_offsets(rig.fs, f"{rig.directory}/cleaner-offset-checkpoint") == {rig.tp: 1}


def test_a_log_that_cannot_be_read_is_set_aside(rig, caplog):
    rig.put((b"a", b"1"))
    rig.put((b"a", b"2"))
    rig.roll()
    path = f"{rig.directory}/{rig.tp}/00000000000000000000.log"
    data = bytearray(rig.fs.read_bytes(path))
    data[-1] ^= 1
    rig.fs.write_bytes(path, bytes(data))
    with caplog.at_level(logging.WARNING):
        rig.clean()
    assert rig.cleaner.uncleanable == {rig.tp}
    assert "Cannot clean t-0" in caplog.text
    assert not [name for name in rig.files() if name.endswith(".cleaned")]
    assert rig.fs.read_bytes(path) == bytes(data)
    del rig.logs[rig.tp]
    rig.clock.advance(2)
    assert not rig.cleaner.uncleanable


@pytest.mark.parametrize("change", ["retention", "deleted", "truncated", "stopped", "aborted"])
def test_a_log_that_changes_while_it_is_cleaned_keeps_its_segments(rig, change):
    rig.put((b"a", b"1"), (b"b", b"1"))
    rig.roll()
    rig.put((b"a", b"2"))
    rig.roll()
    rig.put((b"c", b"1"))
    rig.offload = queue = Queue()
    rig.clean()
    queue.run_until("make_plan")
    work, done = queue.waiting.pop(0)
    if change == "aborted":
        rig.cleaner.abort(rig.tp)
    queue.waiting.insert(0, (work, lambda future: (act(rig, change), done(future))))
    queue.run()
    assert rig.cleaner.checkpoint(rig.tp) is None
    leftovers = [name for name in rig.files() if name.endswith((".cleaned", ".swap", ".deleted"))]
    if change == "deleted":
        return
    if change == "stopped":
        # The swap was agreed on with the disk already: the next start finishes it.
        rig.log.close()
        rig.open(clean=True)
        assert rig.offsets() == [1, 2, 3]
        return
    assert leftovers == []
    expected = {"retention": [2, 3], "truncated": [0, 1]}.get(change, [0, 1, 2, 3])
    assert rig.offsets() == expected
    assert rig.cleaner.uncleanable == set()


def act(rig, change):
    match change:
        case "retention":
            rig.log.advance_log_start(2)
            rig.log.delete_old_segments(rig.clock.now_ms())
        case "deleted":
            del rig.logs[rig.tp]
        case "truncated":
            rig.log.truncate_to(2)
        case "stopped":
            rig.cleaner.stop()


def test_compact_and_delete_go_together(tmp_path):
    rig = Rig(OsFs(), str(tmp_path), topic_config(cleanup_policy="compact,delete", retention_ms=60_000))
    rig.put((b"a", b"1"), (b"b", b"1"))
    rig.put((b"a", b"2"))
    rig.roll()
    rig.clean()
    assert rig.offsets() == [1, 2]
    rig.clock.advance_ms(61_000)
    rig.put((b"c", b"1"))
    assert rig.log.delete_old_segments(rig.clock.now_ms()) == 1
    assert rig.offsets() == [3]


def test_topics_that_are_not_compacted_are_left_alone(tmp_path):
    rig = Rig(OsFs(), str(tmp_path), topic_config(cleanup_policy="delete"))
    rig.put((b"a", b"1"), (b"a", b"2"))
    rig.roll()
    rig.clean()
    assert rig.offsets() == [0, 1]


def test_a_clean_log_is_not_dirty(rig):
    rig.put((b"a", b"1"))
    rig.roll()
    rig.clean()
    found = judge(rig.log, 1, rig.clock.now_ms())
    assert (found.cleanable_bytes, found.worthwhile) == (0, False)


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_compaction_keeps_exactly_the_last_value_of_each_key(tmp_path_factory, data):
    rig = Rig(OsFs(), str(tmp_path_factory.mktemp("log")))
    keys = st.sampled_from([b"%d" % n for n in range(8)] + [b"long" * 20])
    pairs = st.lists(st.tuples(keys, st.one_of(st.none(), st.binary(max_size=30))), min_size=1, max_size=8)
    last = {}
    for _ in range(data.draw(st.integers(1, 12))):
        match data.draw(st.sampled_from(["put", "put", "put", "roll", "clean"])):
            case "put":
                drawn = data.draw(pairs)
                first = rig.put(*drawn, compression=data.draw(st.sampled_from(Compression)))
                for index, (key, value) in enumerate(drawn):
                    last[key] = (first + index, value)
            case "roll":
                rig.roll()
            case "clean":
                rig.clean()
    rig.roll()
    rig.clean()
    found = {record.key: (record.offset, record.value) for record in rig.records()}
    assert found == last
    offsets = rig.offsets()
    assert offsets == sorted(set(offsets)) == sorted(offset for offset, _ in last.values())
    check_reads(rig, offsets)
    rig.log.close_files()
    rig.open()
    assert {record.key: (record.offset, record.value) for record in rig.records()} == last
    rig.log.close()


def check_reads(rig, offsets):
    """A read at any offset gives the batch that holds the next record that is still there."""
    for offset in range(rig.log.log_end_offset):
        expected = next((o for o in offsets if o >= offset), None)
        batches = list(iter_batches(bytes(rig.log.read(offset, 1).records)))
        if expected is not None:
            assert batches, offset
            assert batches[0][1].last_offset >= offset


def test_the_pace_stops_at_once_when_called_off():
    throttler = Throttler(SystemClock(), 1.0)
    throttler.abort()
    with pytest.raises(CleaningAbortedError):
        throttler(10_000_000)


def test_the_pace_keeps_to_the_configured_rate():
    clock = SystemClock()
    started = clock.monotonic()
    throttler = Throttler(clock, 1_000_000.0)
    for _ in range(10):
        throttler(5_000)
    assert clock.monotonic() - started >= 0.04


def test_cleaning_in_threads_leaves_the_event_loop_running(tmp_path):
    turned = threading.Event()

    class PatientFs(OsFs):
        """A thread that opens a file waits until the loop has turned; the loop itself would not."""

        def open(self, path, *, create=False, truncate=False):
            if threading.current_thread() is not threading.main_thread():
                assert turned.wait(60)
            return super().open(path, create=create, truncate=truncate)

    rig = Rig(PatientFs(), str(tmp_path))
    for index in range(40):
        rig.put(*((b"k%d" % n, b"%d" % index) for n in range(50)))
    rig.roll()

    async def scenario():
        cleaner = LogCleaner(rig.fs, rig.logs, [rig.directory], CleanerConfig(), SystemClock())
        cleaner.start()
        turns = 0
        while cleaner.checkpoint(rig.tp) is None:
            turns += 1
            if turns > 10:
                turned.set()
            await asyncio.sleep(0)
        cleaner.stop()
        return turns

    assert asyncio.run(asyncio.wait_for(scenario(), 60)) > 10
    assert len(rig.offsets()) == 50
    assert rig.values() == {b"k%d" % n: b"39" for n in range(50)}


def test_a_segment_ends_in_time_for_the_maximum_lag(tmp_path):
    rig = Rig(OsFs(), str(tmp_path), topic_config(max_compaction_lag_ms=10_000))
    rig.put((b"a", b"1"))
    rig.clock.advance_ms(10_000)
    rig.put((b"a", b"2"))
    assert len(rig.log.segments) == 1
    rig.clock.advance_ms(1)
    rig.put((b"a", b"3"))
    assert len(rig.log.segments) == 2


def test_a_cleaner_that_is_switched_off_does_nothing_and_minds_nothing(tmp_path):
    rig = Rig(OsFs(), str(tmp_path))
    cleaner = LogCleaner(rig.fs, rig.logs, [rig.directory], CleanerConfig(enable=False), rig.clock)
    rig.put((b"a", b"1"), (b"a", b"2"))
    rig.roll()
    cleaner.start()
    cleaner.truncated(rig.tp, 0)
    cleaner.abort(rig.tp)
    cleaner.stop()
    assert rig.offsets() == [0, 1]
