"""Moving logs between log directories: a `-future` copy is filled in the background and then takes the log's place.

The executor copies in pieces. The last piece and the exchange happen on the event loop between two appends, so
users of the log do not notice.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from functools import partial
from typing import TYPE_CHECKING

from ottla.clock import Clock
from ottla.errors import ApiException, ErrorCode
from ottla.log.files import FUTURE_DIR_SUFFIX, marked_dir_name
from ottla.log.log_dir import LogDir
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import create_log
from ottla.log.types import TopicPartition
from ottla.records.batch import read_header

if TYPE_CHECKING:
    from ottla.log.manager import LogManager

_logger = logging.getLogger(__name__)

_PIECE_BYTES = 1 << 20
_PIECES_AT_ONCE = 16
_LAST_PIECES = 8
"""The most bytes to copy on the event loop, just before the exchange."""

Post = Callable[..., object]
Announce = Callable[[TopicPartition, LogDir, Callable[[], None]], None]
"""`announce(partition, directory, granted)`: announce the new directory of a replica; it calls `granted` on consent."""


class Relocation:
    """The running moves of a `LogManager`, which keeps the tables of logs."""

    def __init__(self, manager: LogManager, clock: Clock, executor: Executor) -> None:
        self._manager = manager
        self._clock = clock
        self._executor = executor
        self._post: Post | None = None
        self._under_way: dict[TopicPartition, Future[None]] = {}
        self._cuts: dict[TopicPartition, int] = {}
        """The offset up to which the copy still matches the log."""
        self._announced: dict[TopicPartition, PartitionLog] = {}
        self._granted: set[PartitionLog] = set()
        self._stopped = False
        self.announce: Announce | None = None
        """Set if consent is needed before the copy replaces the log."""

    def start(self, post: Post) -> None:
        """Continue interrupted moves. `post` runs a function on the event loop."""
        self._post = post
        for tp in list(self._manager.future_logs):
            self.resume(tp)

    def stop(self) -> None:
        """Start no more pieces, and wait for the running ones."""
        self._post = None
        self._stopped = True
        wait(self._under_way.values())

    def begin(self, tp: TopicPartition, target: LogDir) -> PartitionLog:
        """Create the empty future log of a partition in another directory."""
        log = self._manager.logs[tp]
        unique = uuid.UUID(bytes=self._clock.random_uuid()).hex
        path = f"{target.path}/{marked_dir_name(tp, unique, FUTURE_DIR_SUFFIX)}"
        future = create_log(self._manager.context_of(target), path, log.config, log.topic_id)
        _restart(log, future)
        return future

    def truncated(self, tp: TopicPartition, offset: int) -> None:
        """The log was truncated: the copy is wrong from there on."""
        if tp in self._manager.future_logs:
            self._cuts[tp] = min(offset, self._cuts.get(tp, offset))

    def resume(self, tp: TopicPartition) -> None:
        """Continue to copy until the future log has caught up."""
        log, future = self._manager.logs.get(tp), self._manager.future_logs.get(tp)
        if self._post is None or log is None or future is None or tp in self._under_way:
            return
        done = self._under_way[tp] = self._executor.submit(self._copy_pieces, log, future)
        done.add_done_callback(partial(self._hand_back, tp, log, future))

    def _copy_pieces(self, log: PartitionLog, future: PartitionLog) -> None:
        """Copy some megabytes, then free the thread. Nothing else uses the future log meanwhile."""
        if future.log_end_offset > log.log_end_offset:
            future.truncate_to(log.log_end_offset)
        for _ in range(self._pieces_at_once()):
            if self._stopped or not _copy_piece(log, future, _PIECE_BYTES):
                break
        future.flush()

    def _pieces_at_once(self) -> int:
        """Return the bytes to copy without a pause: fewer with a throttle."""
        return max(1, min(_PIECES_AT_ONCE, self._rate() // _PIECE_BYTES))

    def _rate(self) -> int:
        return self._manager.config.int("replica.alter.log.dirs.io.max.bytes.per.second")

    def _hand_back(
        self, tp: TopicPartition, log: PartitionLog, future: PartitionLog, done: Future[None]
    ) -> None:
        if self._post is not None:
            self._post(self._copied, tp, log, future, done)

    def _copied(
        self, tp: TopicPartition, log: PartitionLog, future: PartitionLog, done: Future[None]
    ) -> None:
        self._under_way.pop(tp, None)
        if self._manager.logs.get(tp) is not log or self._manager.future_logs.get(tp) is not future:
            return  # deleted, or moved elsewhere meanwhile
        try:
            done.result()
            cut = self._cuts.pop(tp, None)
            if cut is not None:
                future.truncate_to(cut)
            if not _copy_rest(log, future):
                self._clock.call_later(
                    self._pieces_at_once() * _PIECE_BYTES / max(self._rate(), 1), self.resume, tp
                )
                return
        except ApiException as e:
            _logger.error("%s cannot be moved to %s: %s", tp, future.path, e)
            return
        if self.announce is None or future in self._granted:
            self._granted.discard(future)
            self._announced.pop(tp, None)
            self._manager.exchange(tp)
        elif self._announced.get(tp) is not future:
            self._announced[tp] = future
            self.announce(tp, self._manager.directory_of(future), partial(self._grant, tp, future))

    def _grant(self, tp: TopicPartition, future: PartitionLog) -> None:
        if self._manager.future_logs.get(tp) is future:
            self._granted.add(future)
            self.resume(tp)


def _restart(log: PartitionLog, future: PartitionLog) -> None:
    """Start the future log where the log starts, which may be inside a batch."""
    start = log.log_start_offset
    first = log.read(start, 1).records
    base = read_header(first).base_offset if len(first) else start
    future.truncate_fully_and_start_at(min(base, start), start)


def _copy_piece(log: PartitionLog, future: PartitionLog, size: int) -> bool:
    """Copy the next piece; False if there is none."""
    if log.log_start_offset > future.log_end_offset:
        _restart(log, future)
    try:
        piece = log.read(max(future.log_end_offset, log.log_start_offset), size).records
    except ApiException as e:
        if e.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        _restart(log, future)
        return True
    if not len(piece):
        return False
    if read_header(piece).base_offset < future.log_end_offset:
        # The log was truncated and rewritten meanwhile: the copied data is wrong.
        future.truncate_to(read_header(piece).base_offset)
    future.append_as_follower(piece)
    return True


def _copy_rest(log: PartitionLog, future: PartitionLog) -> bool:
    """Catch up if little is missing. Returns whether the future log is complete."""
    for _ in range(_LAST_PIECES):
        if future.log_end_offset >= log.log_end_offset:
            break
        _copy_piece(log, future, _PIECE_BYTES)
    return future.log_end_offset == log.log_end_offset
