"""FileStreamSource: the lines of a file, or of standard input, as records; it follows a file that grows.

Offsets are Kafka's: `{"filename": path}` has `{"position": bytes}`. A line ends with \\n, \\r or \\r\\n; the last
line is read when its end is there. Large pieces of a file are split at line ends over tasks.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from ottla.connect.config.definitions import ConfigDef, kafka_keys
from ottla.connect.data.record import SourceRecord
from ottla.connect.data.schema import STRING
from ottla.connect.failures import ConnectError, TaskFailed
from ottla.connect.spi import Finding, Offsets, Read, ReadLimit, SourceConnector, SourceReader, partition_key
from ottla.json_types import Json, to_int

_logger = logging.getLogger(__name__)

_SCAN_BYTES: Final = 1 << 20
_LONGEST_LINE: Final = 64 << 20
_LEAST_SPLIT_BYTES: Final = 8 << 20
_QUICK_LOOKS: Final = 20
_IDLE_LOOK_S: Final = 1.0
_MOST_QUEUED_LINES: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes of the file, from the start of a line to the end of one."""

    start: int
    end: int
    number: int = 0


class FileStreamSource(SourceConnector):
    """`org.apache.kafka.connect.file.FileStreamSourceConnector`."""

    java_classes = ("org.apache.kafka.connect.file.FileStreamSourceConnector",)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """The keys `file`, `topic` and `batch.size`."""
        return kafka_keys("FileStreamSource")

    def check(self) -> list[Finding]:
        """Whether the file is there."""
        path = self.values["file"]
        if not path:
            return [Finding(True, "reads standard input")]
        if os.access(path, os.R_OK):
            return [Finding(True, f"{path} has {os.path.getsize(path)} bytes")]
        return [Finding(False, f"{path} is not there or cannot be read: the connector waits until it can be")]

    def reader(self) -> SourceReader:
        """A reader of the file, or of standard input."""
        topic, path = self.values["topic"], self.values["file"]
        return _FileReader(path, topic) if path else _StdinReader(topic)

    def check_offset(self, partition: Mapping[str, Json] | None, offset: Mapping[str, Json] | None) -> None:
        """As Kafka's connector checks them."""
        if not self.values["file"]:
            raise ConnectError(
                "Offsets cannot be modified if the 'file' configuration is unspecified. "
                "This is because stdin is used for input and offsets are not tracked."
            )
        if offset is not None:
            if "position" not in offset:
                raise ConnectError("Offset objects should either be null or contain the key 'position'")
            position = offset["position"]
            if not isinstance(position, int) or isinstance(position, bool):
                raise ConnectError(
                    "The value for the 'position' key in the offset is expected to be a Long value"
                )
            if position < 0:
                raise ConnectError(
                    "The value for the 'position' key in the offset should be a non-negative value"
                )
        if partition is None:
            raise ConnectError("Partition objects cannot be null")
        if "filename" not in partition:
            raise ConnectError("Partition objects should contain the key 'filename'")


class _FileReader(SourceReader):
    def __init__(self, path: str, topic: str) -> None:
        self._path = path
        self._topic = topic
        self._key = partition_key({"filename": path})
        self._inode: int | None = None
        self._missing = False
        self._seen: tuple[int, int, int, int] | None = None
        """What the file was when nothing new was found, and the position of that: there is no need to read it again."""
        self._idle = 0

    def latest_offsets(self, start: Offsets, limit: ReadLimit) -> Offsets:
        position = self._position(start)
        try:
            status = os.stat(self._path)
        except OSError as error:
            if not self._missing:
                _logger.warning("%s cannot be read (%s): waiting for it", self._path, error.strerror)
            self._missing = True
            self._idle += 1
            return start
        self._missing = False
        seen = (status.st_ino, status.st_size, status.st_mtime_ns, position)
        if seen == self._seen:
            self._idle += 1
            return start
        self._idle = 0
        if status.st_size < position:
            position = self._shrunk(position, status)
        self._inode = status.st_ino
        with open(self._path, "rb") as file:
            end = _end_of_lines(file, position, min(status.st_size, position + limit.bytes), status.st_size)
        if end != self._position(start):
            return {self._key: {"position": end}}
        self._seen = seen
        return start

    def _position(self, offsets: Offsets) -> int:
        return to_int(offsets.get(self._key, {}).get("position", 0))

    def _shrunk(self, position: int, status: os.stat_result) -> int:
        """A shorter file: a replaced one is read from its start, a truncated one is not guessed about."""
        if self._inode is not None and status.st_ino != self._inode:
            _logger.warning("%s was replaced by another file: reading it from its start", self._path)
            return 0
        raise TaskFailed(
            f"{self._path} has {status.st_size} bytes, fewer than the {position} that were read already: it was "
            f"truncated or replaced. Set the offset (`ottla connectors offsets reset`) to read it from its start"
        )

    def splits(self, start: Offsets, end: Offsets, max_splits: int) -> Sequence[_Piece]:
        first, last = self._position(start), self._position(end)
        if last < first:
            first = 0
        wanted = max(1, min(max_splits, (last - first) // _LEAST_SPLIT_BYTES))
        cuts = [first]
        with open(self._path, "rb") as file:
            for number in range(1, wanted):
                cut = _next_line(file, first + (last - first) * number // wanted, last)
                if cuts[-1] < cut < last:
                    cuts.append(cut)
        return [
            _Piece(at, until, number)
            for number, (at, until) in enumerate(zip(cuts, [*cuts[1:], last], strict=True))
        ]

    def read(self, split: _Piece) -> Iterator[Read]:
        from ottla.connect.run.columns import line_batch

        with open(self._path, "rb") as file:
            file.seek(split.start)
            left, rest = split.end - split.start, b""
            while left:
                data = file.read(min(left, _SCAN_BYTES))
                if not data:
                    raise TaskFailed(f"{self._path} became shorter while it was read")
                left -= len(data)
                lines, rest = _split_lines(rest + data, at_end=not left)
                if lines:
                    yield line_batch(self._topic, lines)

    def wait(self, timeout_s: float, stopping: Callable[[float], bool]) -> None:
        """A file that nobody writes to is looked at once a second, as often as Kafka's connector does."""
        stopping(timeout_s if self._idle < _QUICK_LOOKS else max(timeout_s, _IDLE_LOOK_S))

    def size(self, start: Offsets, end: Offsets) -> int:
        return max(0, self._position(end) - self._position(start))

    def lag(self, start: Offsets) -> str | None:
        try:
            return f"{max(0, os.stat(self._path).st_size - self._position(start))} bytes"
        except OSError:
            return None


def _split_lines(data: bytes, *, at_end: bool) -> tuple[list[bytes], bytes]:
    """The whole lines, without their ends, and the bytes of the last one that is not whole yet."""
    if b"\r" in data:
        held = b"\r" if data.endswith(b"\r") and not at_end else b""
        data = data[: len(data) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held
    lines = data.split(b"\n")
    rest = lines.pop()
    return lines, rest


def _end_of_lines(file: BinaryIO, start: int, until: int, size: int) -> int:
    """The end of the last whole line that ends at or before `until`; of the first one if that is longer."""
    at = until
    while at > start:
        low = max(start, at - _SCAN_BYTES)
        file.seek(low)
        data = file.read(at - low)
        found = max(data.rfind(b"\n"), data.rfind(b"\r"))
        # A \r at the very end may be half of \r\n.
        if found == len(data) - 1 and data.endswith(b"\r") and at == until:
            file.seek(at)
            following = file.read(1)
            if following in (b"", b"\n"):
                found = max(data[:-1].rfind(b"\n"), data[:-1].rfind(b"\r"))
        if found >= 0:
            return low + found + 1
        at = low
    if until < size:
        return _next_line(file, until, size, whole=True, start=start)
    return start


def _next_line(file: BinaryIO, at: int, last: int, *, whole: bool = False, start: int = 0) -> int:
    """The start of the first line that begins after a place; `last`, or `start` if `whole`, where there is none."""
    file.seek(at)
    while at < last:
        data = file.read(min(_SCAN_BYTES, last - at))
        found = data.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(data)
        if whole and at - start > _LONGEST_LINE:
            raise TaskFailed(f"the line at byte {start} is longer than {_LONGEST_LINE} bytes")
    return start if whole else last


class _StdinReader(SourceReader):
    """Lines of standard input: what was read is gone, so its offsets only count lines."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._key = partition_key({"filename": "stdin"})
        self._lines: deque[bytes] = deque()
        self._first = 0
        self._there = threading.Condition()
        self._thread: threading.Thread | None = None

    def _begin(self, count: int) -> None:
        if self._thread is None:
            self._first = count
            self._thread = threading.Thread(target=self._listen, name="stdin", daemon=True)
            self._thread.start()

    def _listen(self) -> None:
        for line in sys.stdin.buffer:
            with self._there:
                while len(self._lines) >= _MOST_QUEUED_LINES:
                    self._there.wait()
                self._lines.append(line.rstrip(b"\r\n"))
                self._there.notify_all()

    def latest_offsets(self, start: Offsets, limit: ReadLimit) -> Offsets:
        count = to_int(start.get(self._key, {}).get("position", 0))
        self._begin(count)
        with self._there:
            end = self._first + min(len(self._lines), limit.records)
        return {self._key: {"position": end}} if end > count else start

    def splits(self, start: Offsets, end: Offsets, max_splits: int) -> Sequence[_Piece]:
        return [
            _Piece(to_int(start.get(self._key, {}).get("position", 0)), to_int(end[self._key]["position"]))
        ]

    def read(self, split: _Piece) -> Iterator[Read]:
        with self._there:
            lines = [self._lines[at - self._first] for at in range(split.start, split.end)]
        for number, line in enumerate(lines, split.start + 1):
            yield SourceRecord(
                self._topic,
                line.decode("utf-8", "replace"),
                STRING,
                source_partition={"filename": "stdin"},
                source_offset={"position": number},
            )

    def commit(self, end: Offsets) -> None:
        with self._there:
            while self._first < to_int(end[self._key]["position"]):
                self._lines.popleft()
                self._first += 1
            self._there.notify_all()

    def wait(self, timeout_s: float, stopping: Callable[[float], bool]) -> None:
        with self._there:
            if not self._lines:
                self._there.wait(min(timeout_s, 0.2))
