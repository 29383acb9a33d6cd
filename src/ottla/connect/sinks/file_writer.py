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
from ottla.connect.data.logical import timestamp_of
from ottla.connect.data.record import SinkRecord
from ottla.connect.data.schema import ConnectValue, Schema, Struct
from ottla.connect.failures import ConnectError, DataError, Retriable, TaskFailed
from ottla.connect.sinks.file_formats import format_of
from ottla.connect.spi import Refuse, SinkCycle, SinkWriter
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
        files: dict[tuple[str, str, int, Schema | None], list[SinkRecord]] = {}
        number = 0
        most: int = self._values["flush.size"]
        for record in records:
            try:
                folder = self._folder(record)
                self._check(record)
            except DataError as error:
                refuse(record, error)
                continue
            schema = record.value_schema if self._format.needs_schema else None
            key = (folder, record.original_topic, record.original_partition, schema)
            waiting = files.setdefault(key, [])
            waiting.append(record)
            if most and len(waiting) >= most:
                self._write_file(folder, files.pop(key), refuse)
                number += 1
        for (folder, *_), waiting in files.items():
            self._write_file(folder, waiting, refuse)
        return number + len(files)

    def _write_file(self, folder: str, records: list[SinkRecord], refuse: Refuse) -> None:
        first = records[0]
        name = f"{first.original_topic}+{first.original_partition}+{first.offset:0{_OFFSET_DIGITS}d}"
        try:
            data = self._format.encode(records, self._values)
        except (DataError, ValueError, TypeError, OverflowError) as error:
            if len(records) > 1:
                middle = len(records) // 2
                self._write_file(folder, records[:middle], refuse)
                self._write_file(folder, records[middle:], refuse)
                return
            refuse(first, DataError(f"{name} cannot be written as {self._format.extension}: {error}"))
            return
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

    def _folder(self, record: SinkRecord) -> str:
        if self._partitioner == "DefaultPartitioner":
            return f"partition={record.original_partition}"
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
