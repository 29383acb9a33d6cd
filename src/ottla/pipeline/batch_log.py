"""What each batch of a DStream reads, written down before it is read.

A batch that runs again after a crash of the driver must read the same records, or its output and its state would not
be exactly once. Spark's own checkpoint is written after a batch's jobs have started: that is too late.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

import msgspec

from ottla.pipeline.failures import PipelineError
from ottla.pipeline.shared_files import SharedFiles

E = TypeVar("E", bound=msgspec.Struct)

_LEAST_KEPT: Final = 64
_DIGITS: Final = 15
"""Of a time in ms, so that names sort by time."""


class BatchLog(Generic[E]):
    """Entries by batch time. They are in memory only where the stream has no checkpoint directory."""

    def __init__(self, kind: type[E], directory: str | None) -> None:
        self._kind = kind
        self._files = None if directory is None else SharedFiles(directory)
        self._entries: dict[int, E] = {}
        if self._files is not None:
            for name in self._files.names():
                data = self._files.read(name)
                if data is not None:
                    self._entries[int(name)] = self._decode(name, data)

    def _decode(self, name: str, data: bytes) -> E:
        try:
            return msgspec.json.decode(data, type=self._kind)
        except msgspec.DecodeError as error:
            where = "" if self._files is None else f"{self._files.directory}/{name}"
            raise PipelineError(
                f"{where} is damaged: {error}. Restore it, or start without the checkpoint"
            ) from None

    @property
    def newest(self) -> E | None:
        """The entry of the last batch."""
        return self._entries[max(self._entries)] if self._entries else None

    def get(self, time_ms: int) -> E | None:
        """The entry of a batch; None for one that is new. Raises for one that is too old to be known."""
        entry = self._entries.get(time_ms)
        if entry is None and self._entries and time_ms < max(self._entries):
            raise PipelineError(
                f"what the batch of time {time_ms} read is no longer known: keep more with StreamingContext.remember"
            )
        return entry

    def put(self, time_ms: int, entry: E) -> None:
        """Keep the entry of a new batch. It is durable when this returns."""
        if self._files is not None:
            self._files.write(f"{time_ms:0{_DIGITS}}", msgspec.json.encode(entry))
        self._entries[time_ms] = entry

    def forget(self, before_ms: int) -> list[E]:
        """Drop entries of older batches, but never the last few. Returns what was dropped."""
        old = [time_ms for time_ms in sorted(self._entries)[:-_LEAST_KEPT] if time_ms < before_ms]
        for time_ms in old:
            if self._files is not None:
                self._files.delete(f"{time_ms:0{_DIGITS}}")
        return [self._entries.pop(time_ms) for time_ms in old]
