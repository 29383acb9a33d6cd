"""Runs of Produce requests that are written in one write, on a disk that loses its power or fails."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.errors import ApiException
from ottla.records.batch import check_crc, iter_batches, iter_records
from ottla.replica.group_append import append_together
from ottla.replica.partition import Partition
from ottla.testing.memfs import MemFs
from unit.replica.replica_scene import Scene, make_scene


def _scene() -> tuple[Scene, Partition]:
    scene = make_scene()
    scene.ready_at_once = True
    scene.clock.advance(1)
    scene.create_topic("t", 1, {"segment.bytes": "1048576", "index.interval.bytes": "200"})
    return scene, scene.replicas.find(("t", 0))


def _append_run(scene: Scene, partition: Partition, values: list[bytes]) -> list[int]:
    """Append the values as one run; the offset of each that is acknowledged."""
    requests = [(scene.batch(value), 1, 12) for value in values]
    infos = append_together(partition, requests, scene.clock.now_ms())
    return [info.first_offset for info in infos if info is not None]


def _reopened(scene: Scene, fs: MemFs) -> list[tuple[int, bytes | None]]:
    """Offsets and values that a broker on this disk serves. Each batch is whole."""
    again = make_scene(fs, scene.clock)
    again.create_topic("t", 1, topic_id=scene.topic_ids["t"])
    log = again.replicas.find(("t", 0)).local_log()
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, 1 << 20).records
        for position, header in iter_batches(records):
            assert check_crc(records, position, header)
            found += [(each.offset, each.value) for each in iter_records(records, position, header)]
            offset = header.next_offset
    return found


@pytest.mark.parametrize("seed", range(150))
def test_a_power_loss_keeps_what_was_flushed_and_cuts_a_run_between_batches(seed: int) -> None:
    chance = random.Random(seed)
    scene, partition = _scene()
    log = partition.local_log()
    written = [(0, b"first")]
    _append_run(scene, partition, [b"first"])
    log.flush()  # from here on the files' names and the topic's id are on disk
    flushed = 1
    for _ in range(chance.randrange(1, 12)):
        size = chance.randrange(1, 30)
        values = [b"%d-%d" % (seed, len(written) + n) + bytes(chance.randrange(300)) for n in range(size)]
        written += zip(_append_run(scene, partition, values), values, strict=True)
        scene.clock.advance_ms(chance.randrange(5))
        if chance.random() < 0.3:
            log.flush()
            flushed = len(written)
    assert [offset for offset, _ in written] == list(range(len(written)))
    found = _reopened(scene, scene.fs.crash(chance))
    assert found == written[: len(found)]
    assert len(found) >= flushed


@pytest.mark.parametrize("seed", range(20))
def test_kill_9_loses_nothing_that_was_acknowledged(seed: int) -> None:
    chance = random.Random(seed)
    scene, partition = _scene()
    written: list[tuple[int, bytes | None]] = []
    for _ in range(10):
        values = [b"%d" % (len(written) + n) for n in range(chance.randrange(1, 30))]
        written += zip(_append_run(scene, partition, values), values, strict=True)
        assert _reopened(scene, scene.fs.kill()) == written


def test_a_run_that_the_disk_refuses_acknowledges_nothing_and_leaves_nothing() -> None:
    scene, partition = _scene()
    before = _append_run(scene, partition, [b"a", b"b"])
    assert before == [0, 1]

    def refuse(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".log"):
            raise OSError(errno.EIO, "the disk is gone", path)

    scene.fs.fault = refuse
    assert _append_run(scene, partition, [b"c", b"d", b"e"]) == []
    with pytest.raises(ApiException):
        partition.append(scene.batch(b"f"), 1, scene.clock.now_ms(), 12)
    scene.fs.fault = None
    assert _reopened(scene, scene.fs.kill()) == [(0, b"a"), (1, b"b")]


@pytest.mark.parametrize("room", range(0, 400, 40))
def test_a_full_disk_takes_a_run_as_a_whole_or_not_at_all(room: int) -> None:
    scene, partition = _scene()
    _append_run(scene, partition, [b"a"])
    scene.fs.space = room
    taken = _append_run(scene, partition, [b"b" * 20, b"c" * 20, b"d" * 20])
    assert taken in ([], [1, 2, 3])
    assert [offset for offset, _ in _reopened(scene, scene.fs.kill())] == [0, *taken]
