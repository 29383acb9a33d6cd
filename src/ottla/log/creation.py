"""Creating a log: prepared on the event loop, created in any thread, taken on the loop by its first user.

The manager chooses the directory before; `recovery` knows the files of a log.
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
    """A log to be created. A call of `make` waits while another thread is creating it."""

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
        """Create the files, unless that was done or called off. Safe in any thread; raises nothing."""
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
            # The first record needs this file: without it here, the append would create it on the event loop.
            log.leader_epochs.assign(self._epoch, 0)
            log.leader_epochs.write()
        return log

    def take(self) -> PartitionLog:
        """Return the log, and create it now if necessary. Raises the error that prevented it."""
        self.make()
        if self._error is not None:
            raise self._error
        assert self._log is not None
        return self._log

    def call_off(self) -> PartitionLog | None:
        """Cancel the creation. Returns the log if it exists already."""
        with self._turn:
            self._done = True
            return self._log


def write_epochs(log: PartitionLog) -> None:
    """Write the leader epoch file that the first record of an epoch needs. Runs in a thread."""
    # If the disk fails or the log is deleted, the append reports it, as it would without this call.
    with contextlib.suppress(OSError):
        log.leader_epochs.write()
