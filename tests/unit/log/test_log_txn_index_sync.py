"""The index of aborted transactions reaches the disk with its segment, also when recovery wrote it."""

import random

import pytest

from ottla.errors import ApiException, ErrorCode
from ottla.log.txn_index import TransactionIndex
from ottla.log.types import AbortedTxn
from ottla.testing.memfs import MemFs
from unit.log.log_rig import Rig, idempotent, marker


def test_what_recovery_wrote_anew_is_synced():
    fs = MemFs()
    fs.mkdir("/t-0")
    fs.fsync_dir("/")
    index = TransactionIndex(fs, "/t-0/00000000000000000140.txnindex", 140)
    aborted = [AbortedTxn(7, 141, 150, 151)]
    index.replace(aborted)
    index.fsync()
    fs.fsync_dir("/t-0")
    for seed in range(20):
        after = fs.crash(random.Random(seed))
        assert TransactionIndex(after, index.path, 140).entries() == aborted


def test_what_recovery_found_right_is_synced():
    """The process that wrote it was killed before it synced it."""
    fs = MemFs()
    fs.mkdir("/t-0")
    fs.fsync_dir("/")
    path = "/t-0/00000000000000000140.txnindex"
    aborted = [AbortedTxn(7, 141, 150, 151)]
    TransactionIndex(fs, path, 140).append(aborted[0])
    fs = fs.kill()
    index = TransactionIndex(fs, path, 140)
    index.replace_if_changed(aborted)
    index.fsync()
    fs.fsync_dir("/t-0")
    for seed in range(20):
        assert TransactionIndex(fs.crash(random.Random(seed)), path, 140).entries() == aborted


def test_the_name_of_an_index_that_came_late_is_synced():
    """The log's name was on disk before there was an aborted transaction, and thus a file for it."""
    rig = Rig()
    rig.append("before")
    rig.log.flush()
    rig.replicate(idempotent(0, "never", pid=7, is_transactional=True))
    rig.replicate(marker(7, commit=False))
    rig.log.roll()
    rig.append("after")
    rig.log.flush()
    assert isinstance(rig.fs, MemFs)
    for seed in range(20):
        after = rig.fs.crash(random.Random(seed))
        index = TransactionIndex(after, "/data/t-0/00000000000000000000.txnindex", 0)
        assert [(txn.first_offset, txn.last_offset) for txn in index.entries()] == [(1, 2)]


def test_what_was_not_synced_before_a_clean_end_is_synced_with_its_segment():
    """At the end the segment was the active one, whose indexes are not synced; nobody looks at it at the next start."""
    rig = Rig()
    rig.replicate(idempotent(0, "never", pid=7, is_transactional=True))
    rig.replicate(marker(7, commit=False))
    rig.log.flush()
    rig.log.close()
    assert isinstance(rig.fs, MemFs)
    rig.open(clean=True, fs=rig.fs.kill())
    rig.log.roll()
    rig.append("after")
    rig.log.flush()
    for seed in range(20):
        after = rig.fs.crash(random.Random(seed))
        index = TransactionIndex(after, "/data/t-0/00000000000000000000.txnindex", 0)
        assert [(txn.first_offset, txn.last_offset) for txn in index.entries()] == [(0, 1)]


def test_an_index_that_cannot_be_written_fails_the_log():
    rig = Rig()
    rig.replicate(idempotent(0, "never", pid=7, is_transactional=True))
    assert isinstance(rig.fs, MemFs)

    def fault(operation: str, path: str) -> None:
        if path.endswith(".txnindex"):
            raise OSError(5, "Input/output error")

    rig.fs.fault = fault
    with pytest.raises(ApiException) as refused:
        rig.replicate(marker(7, commit=False))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert rig.log.failed is not None
