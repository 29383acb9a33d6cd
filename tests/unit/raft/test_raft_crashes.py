"""Power lost at every point of the metadata log's life: what was acknowledged is there, and nothing is made up."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.broker.storage_format import format_metadata_dir
from ottla.errors import ApiException, ErrorCode
from ottla.raft.voters import VoterSet
from ottla.testing.memfs import MemFs
from unit.raft.raft_cluster import Cluster
from unit.raft.raft_harness import DATA_DIR, DYNAMIC, LOCAL, STATIC, Quorum, feature

SETTINGS = {"metadata.max.retention.bytes": "2000", "metadata.log.segment.ms": "1000"}
APPENDS = 25


class Pulled(Exception):
    """The plug was pulled."""


def fresh_disk(dynamic: bool) -> MemFs:
    fs = MemFs()
    fs.mkdir(DATA_DIR)
    fs.fsync_dir("/")
    if dynamic:
        format_metadata_dir(fs, DATA_DIR, now_ms=1, voters=VoterSet.of([LOCAL]))
    return fs


def quorum_on(fs: MemFs, dynamic: bool) -> Quorum:
    return Quorum(fs, DYNAMIC if dynamic else STATIC, settings=SETTINGS, snapshot_bytes=400)


def live_until_the_plug_is_pulled(fs: MemFs, rng: random.Random, dynamic: bool, first: int) -> list[int]:
    """Append numbered records, settling now and then; gives the numbers that were acknowledged."""
    acknowledged: list[int] = []
    try:
        quorum = quorum_on(fs, dynamic).start()
        for number in range(first, first + APPENDS):
            quorum.raft.append([feature(f"f{number:04d}", 1)], lambda _, n=number: acknowledged.append(n))
            quorum.clock.advance(rng.choice((0, 0.1, 2)))
            if rng.random() < 0.6:
                quorum.settle()
                assert not quorum.faults
        quorum.raft.shutdown()
    except (ApiException, OSError, AssertionError):
        # The power may fail anywhere: on the loop, at start, or in the executor (reported by `on_fault`).
        if fs.fault is None:
            raise
    return acknowledged


def pull_the_plug_after(fs: MemFs, operations: int) -> None:
    left = operations

    def fault(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.EIO, "no power")

    fs.fault = fault


def numbers(quorum: Quorum) -> list[int]:
    return sorted(int(name[1:]) for name in quorum.loader.image.features)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 5))]
)
def test_every_acknowledged_record_survives(block: int, dynamic: bool) -> None:
    for point in range(block * 40, block * 40 + 40):
        rng = random.Random(f"{point} {dynamic}")
        fs = fresh_disk(dynamic)
        known: list[int] = []
        # Three lives on the same disk: what the second writes must not bury what the first left.
        for _ in range(3):
            first = known[-1] + 1 if known else 0
            pull_the_plug_after(fs, rng.randrange(250) if rng.random() < 0.5 else point)
            acknowledged = live_until_the_plug_is_pulled(fs, rng, dynamic, first)
            fs = fs.crash(rng)
            after = quorum_on(fs, dynamic).start()
            found = numbers(after)
            assert set(known + acknowledged) <= set(found), f"lost at point {point}"
            assert found == list(range(len(found))), f"holes at point {point}"
            after.raft.shutdown()
            known = found
            fs = fs.kill()


def test_what_is_in_the_log_is_not_refused_because_a_waiting_fetch_cannot_be_answered() -> None:
    """Seed 253 of the simulator: the controller took it for refused, and wrote the same topic once more."""
    cluster = Cluster().start()
    leader = cluster.elect()
    cluster.run(1)  # the others' fetches wait at the end of its log

    def fault(operation: str, path: str) -> None:
        if operation == "read":
            raise OSError(errno.EIO, "bad disk")

    leader.fs.fault = fault
    end = leader.raft.log_end_offset
    assert leader.raft.append([feature("a")]) == end
    assert len(leader.faults) == 1
    with pytest.raises(ApiException) as e:
        leader.raft.append([feature("a")])
    assert e.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
