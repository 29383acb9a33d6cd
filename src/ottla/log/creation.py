"""A log on its way: begun on the event loop, made in any thread, and taken on the loop by whoever needs it first.

Where it lies is decided by the manager before; what a log consists of is `recovery`'s.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from ottla.errors import ApiException
from ottla.log.recovery import create_log, open_log
from ottla.log.types import NO_EPOCH

if TYPE_CHECKING:
    from ottla.config.topic import TopicConfig
    from ottla.log.context import LogContext
    from ottla.log.log_dir import LogDir
    from ottla.log.partition_log import PartitionLog


class NewLog:
    """One log to be made. Whoever calls `make` while another thread is at it waits for that one log."""

    __slots__ = (
        "_config",
        "_context",
        "_done",
        "_epoch",
        "_error",
        "_log",
        "_turn",
        "directory",
        "path",
        "topic_id",
    )

    def __init__(
        self,
        context: LogContext,
        directory: LogDir,
        path: str,
        config: TopicConfig,
        topic_id: bytes,
        leader_epoch: int = NO_EPOCH,
    ) -> None:
        self._context = context
        self._config = config
        self._epoch = leader_epoch
        self._turn = threading.Lock()
        self._done = False
        self._log: PartitionLog | None = None
        self._error: OSError | ApiException | None = None
        self.directory = directory
        self.path = path
        self.topic_id = topic_id

    def make(self) -> None:
        """Make the files, unless they are made or nobody wants them any more. In any thread; raises nothing."""
        with self._turn:
            if not self._done:
                self._done = True
                try:
                    self._log = self._make()
                except (OSError, ApiException) as error:
                    self._error = error

    def _make(self) -> PartitionLog:
        if self._context.fs.exists(self.path):
            return open_log(self._context, self.path, self._config, clean=False, topic_id=self.topic_id)
        log = create_log(self._context, self.path, self._config, self.topic_id)
        if self._epoch != NO_EPOCH:
            # The first record needs the file: where one is waiting, it would be made on the event loop.
            log.leader_epochs.assign(self._epoch, 0)
            log.leader_epochs.write()
        return log

    def take(self) -> PartitionLog:
        """The log, made here and now where it is not yet. Raises what prevented it."""
        self.make()
        if self._error is not None:
            raise self._error
        assert self._log is not None
        return self._log

    def call_off(self) -> PartitionLog | None:
        """See to it that nothing more is made; the log if it is there already."""
        with self._turn:
            self._done = True
            return self._log


def write_epochs(log: PartitionLog) -> None:
    """Make the file that the first record of an epoch needs, in a thread."""
    # A disk that fails, or a log that goes away: the append finds that out, as it would without this.
    with contextlib.suppress(OSError):
        log.leader_epochs.write()
