"""Writes the files of a cycle: sorts records by folder, then writes each file whole, the name last.

Local files are written under another name and renamed; object stores show an object only when it is whole.
"""

from __future__ import annotations

import datetime
import os
import re
import secrets
import zoneinfo
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ottla.connect.config.definitions import ConfigValues
from ottla.connect.data.columns import FALLS_BACK, RecordColumns, has_nulls
from ottla.connect.data.logical import timestamp_of
from ottla.connect.data.record import SinkRecord
from ottla.connect.data.schema import ConnectValue, Schema, Struct
from ottla.connect.failures import ConnectError, DataError, Retriable, TaskFailed
from ottla.connect.sinks.file_formats import format_of
from ottla.connect.spi import Refuse, SinkCycle, SinkWriter, each_record
from ottla.connect.whole_files import make_folder, write_whole

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_OFFSET_DIGITS: Final = 10
_PATTERN: Final = re.compile(r"'([^']*)'|(Y+|y+|M+|d+|H+|m+|s+)")
_PARTS: Final = {"Y": "%Y", "y": "%Y", "M": "%m", "d": "%d", "H": "%H", "m": "%M", "s": "%S"}
_TIME_PATHS: Final = {
    "DailyPartitioner": "'year'=YYYY/'month'=MM/'day'=dd",
    "HourlyPartitioner": "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH",
}


class Target(ABC):
    """Where files go."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Writes a file whole, in place of one of the same name."""

    @abstractmethod
    def look(self) -> None:
        """ConnectError if the place cannot be reached."""


class LocalTarget(Target):
    """A folder of this machine."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def __str__(self) -> str:
        return str(self._folder)

    def write(self, path: str, data: bytes) -> None:
        full = self._folder / path
        try:
            make_folder(full.parent)
            write_whole(full, data, several_writers=True)
        except OSError as error:
            raise TaskFailed(f"{full} cannot be written: {error.strerror}") from error

    def look(self) -> None:
        there = self._folder
        while not there.exists() and there != there.parent:
            there = there.parent
        if not os.access(there, os.W_OK):
            raise TaskFailed(f"{there} cannot be written: change its rights, or store.url")


class RemoteTarget(Target):
    """A bucket, or another file system of fsspec."""

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        self._url = url.rstrip("/")
        self._options = dict(options)
        self._system: AbstractFileSystem | None = None

    def __str__(self) -> str:
        return self._url

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_system": None}

    def _opened(self) -> AbstractFileSystem:
        if self._system is None:
            scheme = self._url.partition(":")[0]
            try:
                import fsspec

                self._system = fsspec.filesystem(scheme, **self._options)
            except (ImportError, ValueError) as error:
                extra = "s3" if scheme == "s3" else "connect"
                raise TaskFailed(
                    f"{scheme}:// needs a library: pip install 'ottla[{extra}]' ({error})"
                ) from None
        return self._system

    def write(self, path: str, data: bytes) -> None:
        full = f"{self._url}/{path}"
        system = self._opened()
        try:
            system.pipe_file(full, data)
        except (FileNotFoundError, PermissionError) as error:
            raise TaskFailed(f"{full} cannot be written: {error}") from error
        except Exception as error:
            if not isinstance(error, OSError) and not _unanswered(error):
                raise
            raise Retriable(f"{full} cannot be written now: {error}") from error

    def look(self) -> None:
        try:
            self._opened().ls(self._url)
        except ConnectError:
            raise
        except OSError as error:
            raise TaskFailed(f"{self._url} cannot be reached: {error}") from error


def _unanswered(error: Exception) -> bool:
    """Whether an object store did not answer: s3fs passes on botocore's exceptions, which are no OSErrors."""
    try:
        from botocore.exceptions import ConnectionError as NotConnected
        from botocore.exceptions import HTTPClientError
    except ImportError:
        return False
    return isinstance(error, NotConnected | HTTPClientError)


class WebHdfsTarget(RemoteTarget):
    """Folders of HDFS through the web address of its name node: `webhdfs://user@host:9870/folder`."""

    def __init__(self, url: str) -> None:
        found = urlsplit(url)
        if not found.hostname:
            raise TaskFailed(f"{url} names no host: write webhdfs://user@host:9870/folder")
        options: dict[str, object] = {"host": found.hostname, "port": found.port or 9870}
        if found.username:
            options["user"] = found.username
        if found.scheme == "swebhdfs":
            options["use_https"] = True
        super().__init__(f"webhdfs://{found.hostname}:{found.port or 9870}{found.path}", options)
        self._folder = found.path.rstrip("/")

    def write(self, path: str, data: bytes) -> None:
        """Under another name first: HDFS shows a file while it grows."""
        full = f"{self._folder}/{path}"
        folder, _, name = full.rpartition("/")
        # A task that was given up may still write the same file. Readers of folders pass over names with a dot.
        temporary = f"{folder}/.{name}.{secrets.token_hex(4)}.new"
        system = self._opened()
        try:
            system.makedirs(folder, exist_ok=True)
            system.pipe_file(temporary, data)
            if system.exists(full):
                system.rm(full)
            system.mv(temporary, full)
            if not system.exists(full):
                raise Retriable(f"{self._url}: {full} could not get its name")
        except (FileNotFoundError, PermissionError) as error:
            raise TaskFailed(f"{full} cannot be written: {error}") from error
        except OSError as error:
            answer = getattr(error, "response", None)
            if getattr(answer, "status_code", None) in (401, 403):
                raise TaskFailed(f"{full} cannot be written: HDFS refuses it to this user") from error
            # Also what the library behind fsspec raises when no name node answers.
            raise Retriable(f"{full} cannot be written now: {error}") from error

    def look(self) -> None:
        try:
            self._opened().ls("/")
        except ConnectError:
            raise
        except OSError as error:
            raise TaskFailed(f"{self._url} cannot be reached: {error}") from error


def target_of(values: ConfigValues) -> Target:
    """The target of a connector's values: a folder, or an address. For S3, `store.url` may be an endpoint."""
    url: str = values["store.url"] or values["hdfs.url"]
    bucket: str = values["s3.bucket.name"]
    if not bucket and not url.startswith("s3://"):
        return (
            LocalTarget(url.removeprefix("file://"))
            if "://" not in url or url.startswith("file://")
            else WebHdfsTarget(url)
            if url.startswith(("webhdfs://", "swebhdfs://"))
            else RemoteTarget(url, {})
        )
    client: dict[str, str] = {}
    options: dict[str, object] = {"client_kwargs": client}
    if values["aws.access.key.id"]:
        options |= {"key": values["aws.access.key.id"], "secret": values["aws.secret.access.key"]}
    if values["s3.region"]:
        client["region_name"] = values["s3.region"]
    if bucket and url.startswith(("http://", "https://")):
        client["endpoint_url"] = url
    return RemoteTarget(f"s3://{bucket}" if bucket else url, options)


class FilesWriter(SinkWriter):
    """Writes the files of one connector. Not idempotent: the framework repeats the same ranges after a crash."""

    parallel = True  # a range gives the same files each time, and each takes its name whole

    def __init__(self, values: ConfigValues) -> None:
        self._values = dict(values)
        self._format = format_of(values["format.class"])
        self._target = target_of(values)
        self._partitioner: str = values["partitioner.class"].rpartition(".")[2]
        self._zone = zoneinfo.ZoneInfo(values["timezone"] or "UTC")
        pattern: str = _TIME_PATHS.get(self._partitioner) or values["path.format"]
        self._path_format = _PATTERN.sub(_python_part, pattern)

    def write(self, cycle: SinkCycle, records: Iterator[SinkRecord], refuse: Refuse) -> int:
        """Writes all files; the number of them."""
        return self.write_columns(cycle, records, refuse)

    def write_columns(
        self, cycle: SinkCycle, found: Iterator[SinkRecord | RecordColumns], refuse: Refuse
    ) -> int:
        """The same, with whole columns where the format and the folders allow it."""
        files: dict[tuple[str, str, int, Schema | None], _Waiting] = {}
        number = 0
        most: int = self._values["flush.size"]
        for part in self._parts(found):
            try:
                folder = self._folder(part)
                if isinstance(part, SinkRecord):
                    self._check(part)
            except DataError as error:
                assert isinstance(part, SinkRecord)
                refuse(part, error)
                continue
            schema = _schema_of(part) if self._format.needs_schema else None
            key = (folder, *_place_of(part), schema)
            rest: SinkRecord | RecordColumns | None = part
            while rest is not None:
                waiting = files.setdefault(key, _Waiting())
                rest = waiting.add(rest, most)
                if most and waiting.count >= most:
                    self._write_waiting(folder, files.pop(key), refuse)
                    number += 1
        for (folder, *_), waiting in files.items():
            self._write_waiting(folder, waiting, refuse)
        return number + len(files)

    def _parts(self, found: Iterator[SinkRecord | RecordColumns]) -> Iterator[SinkRecord | RecordColumns]:
        """Records side by side where they are one file's; all others one by one."""
        whole = self._format.encode_columns is not None and self._partitioner == "DefaultPartitioner"
        for one in found:
            if isinstance(one, SinkRecord):
                yield one
            elif whole and (one.value.is_struct or not has_nulls(one.value.column)):
                if self._format.needs_schema and one.value.schema is None:
                    yield from one.records()
                else:
                    yield one
            else:
                yield from one.records()

    def _write_waiting(self, folder: str, waiting: _Waiting, refuse: Refuse) -> None:
        columns = [one for one in waiting.parts if isinstance(one, RecordColumns)]
        encode = self._format.encode_columns
        if encode is not None and len(columns) == len(waiting.parts):
            try:
                data = encode(columns, self._values)
            except FALLS_BACK:
                pass
            else:
                self._put(folder, next(columns[0].cut(0, 1).records()), data)
                return
        self._write_file(folder, list(each_record(iter(waiting.parts))), refuse)

    def _write_file(self, folder: str, records: list[SinkRecord], refuse: Refuse) -> None:
        first = records[0]
        try:
            data = self._format.encode(records, self._values)
        except (DataError, ValueError, TypeError, OverflowError) as error:
            if len(records) > 1:
                middle = len(records) // 2
                self._write_file(folder, records[:middle], refuse)
                self._write_file(folder, records[middle:], refuse)
                return
            text = f"{_name_of(first)} cannot be written as {self._format.extension}: {error}"
            refuse(first, DataError(text))
            return
        self._put(folder, first, data)

    def _put(self, folder: str, first: SinkRecord, data: bytes) -> None:
        name = _name_of(first)
        root = self._values["topics.dir"].strip("/")
        parts = [one for one in (root, first.topic, folder, f"{name}.{self._format.extension}") if one]
        self._target.write("/".join(parts), data)

    def _check(self, record: SinkRecord) -> None:
        place = f"{record.original_topic}-{record.original_partition}@{record.offset}"
        if record.value is None:
            raise DataError(
                f"record {place} has a null value, which a file cannot hold: drop it with a transform"
            )
        if self._format.needs_schema and record.value_schema is None:
            raise DataError(
                f"record {place} has no schema, which {self._format.extension} files need: use a converter with "
                "schemas, or format.class=json"
            )

    def _folder(self, part: SinkRecord | RecordColumns) -> str:
        if self._partitioner == "DefaultPartitioner":
            return f"partition={_place_of(part)[1]}"
        assert isinstance(part, SinkRecord)
        record = part
        if self._partitioner == "FieldPartitioner":
            return "/".join(
                f"{one}={_safe(_field(record, one))}" for one in self._values["partition.field.name"]
            )
        return self._time(record).astimezone(self._zone).strftime(self._path_format)

    def _time(self, record: SinkRecord) -> datetime.datetime:
        if self._values["timestamp.extractor"] == "Record":
            return timestamp_of(record.timestamp or 0)
        found = _field(record, self._values["timestamp.field"])
        if isinstance(found, datetime.datetime):
            return found
        if isinstance(found, int) and not isinstance(found, bool):
            return timestamp_of(found)
        try:
            parsed = datetime.datetime.fromisoformat(str(found))
        except ValueError:
            raise DataError(f"{found!r} in {self._values['timestamp.field']} is not a time") from None
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=datetime.UTC)


class _Waiting:
    """What goes into one file, in order."""

    def __init__(self) -> None:
        self.parts: list[SinkRecord | RecordColumns] = []
        self.count = 0

    def add(self, part: SinkRecord | RecordColumns, most: int) -> RecordColumns | None:
        """Takes a part, up to `most` records in all, or any number for 0; gives what is left of it."""
        if isinstance(part, SinkRecord):
            self.parts.append(part)
            self.count += 1
            return None
        room = most - self.count if most else len(part)
        self.parts.append(part.cut(0, room) if room < len(part) else part)
        self.count += min(room, len(part))
        return part.cut(room, len(part) - room) if room < len(part) else None


def _place_of(part: SinkRecord | RecordColumns) -> tuple[str, int]:
    """The topic and partition that records were read from."""
    if isinstance(part, SinkRecord):
        return part.original_topic, part.original_partition
    assert part.fetched is not None
    topic: str = part.fetched.column("topic")[0].as_py()
    partition: int = part.fetched.column("partition")[0].as_py()
    return topic, partition


def _schema_of(part: SinkRecord | RecordColumns) -> Schema | None:
    return part.value_schema if isinstance(part, SinkRecord) else part.value.schema


def _name_of(first: SinkRecord) -> str:
    return f"{first.original_topic}+{first.original_partition}+{first.offset:0{_OFFSET_DIGITS}d}"


def _field(record: SinkRecord, name: str) -> ConnectValue:
    value = record.value
    if isinstance(value, Struct) and value.schema.has(name):
        return value.get(name)
    if isinstance(value, dict) and name in value:
        return value[name]
    place = f"{record.original_topic}-{record.original_partition}@{record.offset}"
    raise DataError(f"record {place} has no field {name}, which names its folder")


def _safe(value: ConnectValue) -> str:
    """A value as the name of a folder: it cannot lead out of the topic's folder."""
    return re.sub(r"[/\\\x00-\x1f]", "_", str(value)) if str(value) not in (".", "..") else "_"


def _python_part(match: re.Match[str]) -> str:
    return match[1].replace("%", "%%") if match[1] is not None else _PARTS[match[2][0]]
