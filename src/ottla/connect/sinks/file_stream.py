"""FileStreamSink: the values of records as lines of a file, each once, or on standard output.

`<file>.ottla` holds the file's length at the last commit and the offsets that it stands for. What is behind that
length was written by a cycle that did not end: it is cut off at the start. A lock on that note is held from the first
byte of a cycle to its commit, so that an older run that wakes up late cannot write beside a newer one.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.config.definitions import ConfigDef, kafka_keys
from ottla.connect.converters.simple import java_string, java_texts
from ottla.connect.data.columns import FALLS_BACK, RecordColumns
from ottla.connect.data.record import SinkRecord
from ottla.connect.failures import Occupied, Retriable, TaskFailed
from ottla.connect.spi import Finding, Place, Refuse, SinkConnector, SinkCycle, SinkWriter, Written
from ottla.connect.whole_files import write_whole

_logger = logging.getLogger(__name__)

_LOCK_ATTEMPTS: Final = 50
_LOCK_PAUSE_S: Final = 0.1


class FileStreamSink(SinkConnector):
    """`org.apache.kafka.connect.file.FileStreamSinkConnector`."""

    java_classes = ("org.apache.kafka.connect.file.FileStreamSinkConnector",)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """The key `file`."""
        return kafka_keys("FileStreamSink")

    def check(self) -> list[Finding]:
        """Whether the file can be written."""
        path = self.values["file"]
        if not path:
            return [Finding(True, "writes to standard output")]
        folder = Path(path).absolute().parent
        if os.access(folder, os.W_OK):
            return [Finding(True, f"{path} can be written")]
        return [
            Finding(False, f"{folder} is not there or cannot be written: create it, or change its rights")
        ]

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """As many as are allowed, as Kafka's has: a group would share out the partitions among them."""
        return [dict(self.config) for _ in range(max_tasks)]

    def writer(self) -> SinkWriter:
        """A writer of the file, or of standard output."""
        path = self.values["file"]
        return _FileWriter(Path(path)) if path else _StdoutWriter()


class _FileWriter(SinkWriter):
    idempotent = True  # the note tells which offsets the file stands for

    def __init__(self, path: Path) -> None:
        self._path = path
        self._note = path.with_name(path.name + ".ottla")
        self._offsets: dict[str, int] = {}
        self._length = 0
        self._lineage = -1
        self._lock: BinaryIO | None = None

    def positions(self, places: Iterable[Place], lineage: int) -> Mapping[Place, int]:
        """The offsets that the file stands for, after what is behind them was cut off."""
        if self._lineage != lineage:
            self._acquire()
            try:
                self._open(lineage)
            finally:
                self._release()
        found = {}
        for place in places:
            offset = self._offsets.get(f"{place.topic}-{place.partition}")
            if offset is not None:
                found[place] = offset
        return found

    def _acquire(self) -> None:
        """Occupied while another run holds the lock: it writes, or it was stopped in the middle of a cycle."""
        if self._lock is not None:
            return
        lock = self._note.with_name(self._note.name + ".lock").open("ab")
        for _ in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOCK_PAUSE_S)
                continue
            self._lock = lock
            return
        lock.close()
        raise Occupied(f"another run of the connector is writing to {self._path}")

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _noted_length(self) -> int | None:
        try:
            return int(json.loads(self._note.read_text())["length"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _open(self, lineage: int) -> None:
        self._lineage = lineage
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            size = 0
        self._length, self._offsets = size, {}
        try:
            note = json.loads(self._note.read_text())
            noted, offsets = int(note["length"]), {str(key): int(one) for key, one in note["offsets"].items()}
        except FileNotFoundError:
            # Noted before the first line is written: a first cycle that does not end is cut off too.
            self._save(size, lineage)
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise TaskFailed(
                f"{self._note} is damaged: remove it to go on from the group's offsets, at the end of {self._path}"
            ) from None
        if size < noted:
            raise TaskFailed(
                f"{self._path} has {size} bytes, fewer than the {noted} that were written: it was truncated or "
                f"replaced. Remove {self._note} to go on at its end"
            )
        if size > noted:
            _logger.warning("%s: %d bytes of a cycle that did not end are cut off", self._path, size - noted)
            os.truncate(self._path, noted)
        self._length = noted
        if int(note.get("lineage", 0)) == lineage:
            self._offsets = offsets

    def write(self, cycle: SinkCycle, records: Iterator[SinkRecord], refuse: Refuse) -> int:
        """Appends the lines; returns the length of the file."""
        return self._append(_line(one) for one in records)

    def write_columns(
        self, cycle: SinkCycle, found: Iterator[SinkRecord | RecordColumns], refuse: Refuse
    ) -> int:
        """The same, with all lines of a column at once."""
        return self._append(_line(one) if isinstance(one, SinkRecord) else _lines(one) for one in found)

    def _append(self, texts: Iterator[bytes | memoryview]) -> int:
        self._acquire()
        noted = self._noted_length()
        if noted is not None and noted != self._length:
            raise Retriable(f"another run of the connector has written to {self._path} meanwhile")
        with self._path.open("ab") as file:
            file.truncate(self._length)
            for text in texts:
                file.write(text)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def commit(self, cycle: SinkCycle, messages: Sequence[Written]) -> None:
        """Notes the new length with the offsets that it stands for."""
        for one in cycle.ranges:
            self._offsets[f"{one.topic}-{one.partition}"] = one.end
        self._save(messages[0], cycle.lineage)
        self._length = messages[0]
        self._release()

    def _save(self, length: int, lineage: int) -> None:
        note = {"length": length, "lineage": lineage, "offsets": self._offsets}
        write_whole(self._note, json.dumps(note).encode())

    def abort(self, cycle: SinkCycle, messages: Sequence[Written]) -> None:
        """Cuts the lines of a failed cycle off, if it is still this run that writes."""
        if self._lock is None:
            return
        ours = self._noted_length() in (None, self._length)
        if ours and self._path.exists() and self._path.stat().st_size > self._length:
            os.truncate(self._path, self._length)
        self._release()

    def stop(self) -> None:
        """Gives the lock back."""
        self._release()


def _line(record: SinkRecord) -> bytes:
    return java_string(record.value, record.value_schema).encode("utf-8", "replace") + b"\n"


def _lines(columns: RecordColumns) -> bytes | memoryview:
    """The lines of all records."""
    try:
        texts = pc.fill_null(java_texts(columns.value), "null")
    except FALLS_BACK:
        return b"".join(map(_line, columns.records()))
    lines = pc.binary_join_element_wise(texts, "\n", "").cast(pa.large_binary())
    _, ends, data = lines.buffers()
    bounds = memoryview(ends).cast("B").cast("q")
    return memoryview(data)[bounds[lines.offset] : bounds[lines.offset + len(lines)]]


class _StdoutWriter(SinkWriter):
    """At least once: what was printed cannot be taken back."""

    idempotent = True

    def write(self, cycle: SinkCycle, records: Iterator[SinkRecord], refuse: Refuse) -> None:
        """Prints the lines."""
        for record in records:
            sys.stdout.write(java_string(record.value, record.value_schema) + "\n")
        sys.stdout.flush()
