"""The index of aborted transactions reaches the disk with its segment, also when recovery wrote it."""

import random

from ottla.log.memfs import MemFs
from ottla.log.txn_index import TransactionIndex
from ottla.log.types import AbortedTxn


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
