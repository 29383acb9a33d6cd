"""Loss of power at any moment: what was synced is there, the rest is a true prefix, and nothing is silently wrong.

Each crash point runs a broker's logs for a while, cuts the power between two operations of the file system, lets
chance decide what became of the unsynced bytes (lost, torn, zeroed, a bit flipped), and starts again on the rest.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from ottla.errors import ApiException
from ottla.log.context import LogContext
from ottla.log.leader_epochs import LeaderEpochCache
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import open_log
from ottla.records.batch import check_crc, iter_batches
from ottla.testing.memfs import MemFs
from unit.log.log_rig import NOW, batch, has_open_transaction, idempotent, marker, stamped, topic_config

PATH = "/data/t-0"


class PowerCutError(BaseException):
    """Raised out of a file operation; nobody in the code under test may catch it."""


@dataclass
class Story:
    """What happened to one log, as its clients know it."""

    seed: int
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    """Every batch as it was written, with its offset, since the last truncation."""
    acknowledged: int = 0
    """Appends returned for everything below."""
    synced: int = 0
    """`flush` returned for everything below."""
    undone: list[tuple[int, bytes]] = field(default_factory=list)
    """Batches that were truncated since the last sync: a crash may bring them back."""
    recovery_point: int = 0
    """As the last checkpoint has it."""
    start: int = 0
    epoch: int = 0
    """Of the leader; it never falls."""
    producer_id: int = 100
    sequence: int = 0
    in_txn: bool = False


def run(fs: MemFs, story: Story, rng: random.Random, steps: int, crash_after: int) -> None:
    """Work on the log until the power goes."""
    countdown = crash_after

    def cut(operation: str, path: str) -> None:
        nonlocal countdown
        countdown -= 1
        if countdown <= 0:
            raise PowerCutError

    config = topic_config(
        segment_bytes=rng.choice([400, 900, 4000]), index_interval_bytes=rng.choice([0, 300])
    )
    context = LogContext(fs, now_ms=lambda: NOW, random=random.Random(0))
    log = open_log(
        context, PATH, config, clean=False, log_start_offset=story.start, recovery_point=story.recovery_point
    )
    fs.fault = cut
    try:
        for _ in range(steps):
            _step(log, story, rng)
    except PowerCutError:
        return
    finally:
        fs.fault = None


def _step(log: PartitionLog, story: Story, rng: random.Random) -> None:
    choice = rng.random()
    if choice < 0.70:
        _append(log, story, rng, story.epoch)
        story.acknowledged = log.log_end_offset
    elif choice < 0.82:
        end = log.log_end_offset
        log.flush()
        story.synced = end
        story.undone = []
    elif choice < 0.84:
        story.recovery_point = log.recovery_point_to_keep
    elif choice < 0.88:
        log.roll()
    elif choice < 0.93:
        story.epoch += 1
        log.assign_epoch_start_offset(story.epoch, log.log_end_offset)
    elif choice < 0.97:
        _truncate(log, story, rng)
    else:
        start = rng.randrange(log.log_start_offset, log.log_end_offset + 1)
        log.high_watermark = log.log_end_offset
        if start <= story.synced:  # the broker advances the start no further than what it has safely
            log.advance_log_start(start)
            story.start = max(story.start, start)
            log.delete_old_segments(NOW)


def _append(log: PartitionLog, story: Story, rng: random.Random, epoch: int) -> None:
    values = ["v" * rng.randrange(1, 60) for _ in range(rng.randrange(1, 4))]
    offset = log.log_end_offset
    kind = rng.random()
    if kind < 0.75:
        raw = batch(*values)
        if kind > 0.5:
            raw = idempotent(story.sequence, *values, pid=story.producer_id)
            story.sequence += len(values)
        # Known to the story before it is written: it may or may not survive.
        story.batches.append((offset, stamped(raw, offset, epoch)))
        log.append_as_leader(raw, epoch, now_ms=NOW)
        return
    if story.in_txn:
        raw = marker(9, commit=rng.random() < 0.5)
    else:
        raw = batch(*values, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    story.in_txn = not story.in_txn
    placed = stamped(raw, offset, epoch)
    story.batches.append((offset, placed))
    log.append_as_follower(placed)


def _truncate(log: PartitionLog, story: Story, rng: random.Random) -> None:
    bases = [offset for offset, _ in story.batches if offset >= max(story.synced, log.log_start_offset)]
    if bases:
        target = rng.choice(bases)
        story.undone += [entry for entry in story.batches if entry[0] >= target]
        story.acknowledged = target
        log.truncate_to(target)
        # As the manager does: a checkpoint of the time before the cut must not outlive it.
        story.recovery_point = min(story.recovery_point, log.recovery_point_to_keep)
        story.batches = [(offset, raw) for offset, raw in story.batches if offset < target]
        _catch_up(story, log)


def _catch_up(story: Story, log: PartitionLog) -> None:
    """The producers go on from what the log has of theirs."""
    state = log.producers.get(story.producer_id)
    if state is None:
        story.producer_id += 1
    story.sequence = 0 if state is None else state.last_sequence + 1
    story.in_txn = has_open_transaction(log)


def _batches_of(log: PartitionLog) -> list[tuple[int, bytes]]:
    return [(h.base_offset, bytes(raw)) for segment in log.segments for _, h, raw in segment.batches()]


def _epochs_on_disk(fs: MemFs) -> set[int]:
    exists = fs.exists(f"{PATH}/leader-epoch-checkpoint")
    return (
        {entry.epoch for entry in LeaderEpochCache.load(fs, PATH, exists=exists).entries} if exists else set()
    )


def _lost_epoch(written: set[tuple[int, bytes]], offset: int, raw: bytes, known: set[int]) -> bool:
    """Whether only the epoch is wrong, and the crash that damaged it also took the epoch out of the checkpoint.

    The epoch lies outside the checksum: without other evidence, nothing can detect it. Nothing synced can get so.
    """
    for epoch in {int.from_bytes(other[12:16], "big") for at, other in written if at == offset} - known:
        if (offset, raw[:12] + epoch.to_bytes(4, "big") + raw[16:]) in written:
            return True
    return False


def check(fs: MemFs, story: Story, *, killed: bool = False) -> PartitionLog:
    """Start on what the crash left: a prefix of what was written, with everything synced."""
    context = LogContext(fs, now_ms=lambda: NOW, random=random.Random(0))
    known = _epochs_on_disk(fs)
    log = open_log(
        context,
        PATH,
        topic_config(),
        clean=False,
        log_start_offset=story.start,
        recovery_point=story.recovery_point,
    )
    assert log.log_end_offset >= story.synced, f"lost synced records: {log} of {story.synced}"
    if killed:
        assert log.log_end_offset >= story.acknowledged, f"lost acknowledged records: {log}"
    written = {*story.batches, *story.undone}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20).records
        following = offset
        for position, header in iter_batches(piece):
            assert check_crc(piece, position, header)
            raw = bytes(piece[position : position + header.size_in_bytes])
            if (header.base_offset, raw) not in written:
                assert _lost_epoch(written, header.base_offset, raw, known), (
                    f"{header} is not what was written"
                )
            following = header.next_offset
        assert following > offset, f"nothing readable at {offset} of {log}"
        offset = following
    assert offset == log.log_end_offset
    for epoch in log.leader_epochs.entries:
        assert epoch.start_offset <= log.log_end_offset
    return log


def crash_point(seed: int) -> None:
    rng = random.Random(seed)
    fs = MemFs()
    fs.mkdir("/data")
    fs.fsync_dir("/")
    story = Story(seed)
    for _ in range(rng.randrange(1, 4)):
        run(fs, story, rng, steps=rng.randrange(5, 60), crash_after=rng.randrange(1, 250))
        before = fs
        killed = rng.random() < 0.2
        fs = before.kill() if killed else before.crash(rng)
        log = check(fs, story, killed=killed)
        story.acknowledged = log.log_end_offset
        story.batches = _batches_of(log)
        _catch_up(story, log)
        # Recovery itself is not flushed: the next crash may undo it.
        story.recovery_point = min(story.recovery_point, log.recovery_point_to_keep)


def _run_seeds(seeds: range) -> None:
    for seed in seeds:
        try:
            crash_point(seed)
        except (AssertionError, ApiException, OSError, ValueError) as e:
            raise AssertionError(f"crash point {seed}: {e}") from e


def test_a_few_crash_points() -> None:
    _run_seeds(range(150))


@pytest.mark.slow
def test_two_thousand_crash_points() -> None:
    _run_seeds(range(150, 2150))
