"""A cleaning may end at any operation on the disk, by a kill or a loss of power: the log is what it was or clean."""

import contextlib
import random

import pytest

from ottla.testing.memfs import MemFs
from unit.log.cleaner.cleaner_rig import Rig, topic_config

DIRECTORY = "/data"


class PowerLossError(Exception):
    """Ends the run at a chosen operation."""


def new_disk():
    fs = MemFs()
    fs.mkdir(DIRECTORY)
    fs.fsync_dir("/")
    return fs


def write_log(fs, rng):
    """A log of several small segments, synced as far as its last roll, and what its keys are last set to."""
    rig = Rig(fs, DIRECTORY, topic_config(internal_segment_bytes=400))
    last = {}
    for index in range(30):
        key, value = b"k%d" % rng.randrange(6), b"v%d" % index
        last[key] = value
        if index % 7 == 3:
            rig.put((key, b"never"), producer=5, txn=True)
            rig.end_txn(5, commit=False)
        rig.put((key, value))
    rig.roll()
    rig.log.flush()
    rig.log.update_config(topic_config(internal_segment_bytes=1200))
    return rig, last


def stop_at(fs, count):
    """Let the file system fail for good at its `count`-th change from now; the number of changes seen so far."""
    seen = [0]

    def fault(operation, path):
        if operation in ("read", "list"):
            return
        seen[0] += 1
        if seen[0] > count:
            raise PowerLossError

    fs.fault = fault
    return seen


def changes_of_a_cleaning():
    fs = new_disk()
    rig, _ = write_log(fs, random.Random(0))
    seen = stop_at(fs, 10**9)
    rig.clean()
    assert len(rig.log.segments) == 4
    return seen[0]


def check(fs, last, count):
    rig = Rig(fs, DIRECTORY, topic_config(internal_segment_bytes=400))
    read = {key: value for key, value in rig.values().items() if key.startswith(b"k") and value != b"never"}
    assert read == last, count
    offsets = rig.offsets()
    assert offsets == sorted(set(offsets)), count
    assert rig.log.log_end_offset == 38, count
    assert not [name for name in rig.files() if name.endswith((".cleaned", ".swap", ".deleted"))]
    rig.put((b"k0", b"after"))
    rig.roll()
    rig.clean()
    read = {key: value for key, value in rig.values().items() if key.startswith(b"k") and value != b"never"}
    assert read == {**last, b"k0": b"after"}, count
    assert rig.cleaner.uncleanable == set()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill", "power loss"])
def test_a_cleaning_may_end_anywhere(end):
    total = changes_of_a_cleaning()
    assert total > 50
    for count in range(total + 1):
        fs = new_disk()
        rig, last = write_log(fs, random.Random(0))
        stop_at(fs, count)
        with contextlib.suppress(PowerLossError):
            rig.clean()
        fs.fault = None
        survivors = [fs.kill()] if end == "kill" else [fs.crash(random.Random(seed)) for seed in range(4)]
        for survivor in survivors:
            check(survivor, last, count)
