"""SpoolDir: the rows of each file that appears in a folder, once; a file that is done is moved or deleted.

Offsets are the original's: `{"fileName": name}` has `{"offset": rows}`. Beside them stand which file it was, so that
another one of the same name is read from its start, and whether it is done.
"""

from __future__ import annotations

import logging
import os
import re
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, TextIO

from ottla.connect.config.definitions import ConfigDef, ConfigKey
from ottla.connect.data.record import SourceRecord
from ottla.connect.data.schema import Struct
from ottla.connect.failures import ConfigInvalid, ConnectError, TaskFailed
from ottla.connect.sources.spool_formats import (
    BadRow,
    CsvFormat,
    JsonFormat,
    Row,
    Rows,
    json_texts,
    lines,
    spool_schema,
)
from ottla.connect.spi import Offsets, Read, ReadLimit, SourceConnector, SourceReader, partition_key
from ottla.json_types import Json, JsonObject, to_int

_logger = logging.getLogger(__name__)

_PACKAGE: Final = "com.github.jcustenborder.kafka.connect.spooldir"
_NO_EFFECT: Final = "Has no effect"
_KEYS: Final = ConfigDef(
    [
        ConfigKey("topic", importance="HIGH", documentation="The topic of all rows"),
        ConfigKey("input.path", importance="HIGH", documentation="The folder that files appear in"),
        ConfigKey("input.file.pattern", importance="HIGH", documentation="A pattern of the names of files"),
        ConfigKey(
            "finished.path", default="", importance="HIGH", documentation="Where files go that are done"
        ),
        ConfigKey(
            "error.path", default="", importance="HIGH", documentation="Where files go that are damaged"
        ),
        ConfigKey("halt.on.error", "BOOLEAN", True, "HIGH", "Stop at a damaged file instead of moving it"),
        ConfigKey("cleanup.policy", default="MOVE", valid="[MOVE, DELETE, NONE]"),
        ConfigKey("file.minimum.age.ms", "LONG", 0, "LOW", "Files that changed later are left for now"),
        ConfigKey("file.charset", default="UTF-8", importance="LOW", documentation="The encoding of files"),
        ConfigKey("value.schema", default="", documentation="The schema of a row, in the original's form"),
        ConfigKey("key.schema", default="", documentation="The schema of keys: fields of the row"),
        ConfigKey("schema.generation.enabled", "BOOLEAN", False, "LOW", "Make the schema from the file"),
        ConfigKey(
            "processing.file.extension", default=".PROCESSING", importance="LOW", documentation=_NO_EFFECT
        ),
        ConfigKey("batch.size", "INT", 1000, "LOW", "Has no effect: see ottla.cycle.max.records"),
        ConfigKey("empty.poll.wait.ms", "LONG", 500, "LOW", "Has no effect: see ottla.poll.interval.ms"),
    ]
)


@dataclass(slots=True)
class _Open:
    """A file that is being read, and how many of its rows were taken."""

    path: Path
    identity: str
    file: TextIO
    rows: Iterator[Row]
    taken: int = 0


@dataclass(slots=True)
class _Taken:
    """The rows of a cycle; `finished` is where the file goes behind them, if it is done."""

    rows: list[Row] = field(default_factory=list)
    path: Path | None = None
    bad: bool = False


class SpoolReader(SourceReader):
    """Reads one folder, file after file, by name."""

    def __init__(self, values: Mapping[str, object], rows: Rows) -> None:
        self._folder = Path(str(values["input.path"]))
        self._pattern = re.compile(str(values["input.file.pattern"]))
        self._finished, self._errors = str(values["finished.path"]), str(values["error.path"])
        self._halt = values["halt.on.error"] is True
        self._policy = str(values["cleanup.policy"])
        age = values["file.minimum.age.ms"]
        self._age_s = age / 1000 if isinstance(age, int) else 0.0
        self._charset = str(values["file.charset"])
        self._topic = str(values["topic"])
        self._key_schema = spool_schema(str(values["key.schema"]), "key.schema")
        self._rows = rows
        self._open: _Open | None = None
        self._taken = _Taken()

    def describe(self) -> list[str]:
        """What `ottla connect validate` shows."""
        for path in filter(None, (str(self._folder), self._finished, self._errors)):
            if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                raise TaskFailed(f"{path} is not a folder that can be read and written: make it")
        return [f"{self._folder} has {len(self._files())} files"]

    def _files(self) -> list[Path]:
        """The files of the folder that are old enough, by name."""
        try:
            found = sorted(one for one in self._folder.iterdir() if self._pattern.fullmatch(one.name))
        except OSError as error:
            raise TaskFailed(f"{self._folder} cannot be read: {error.strerror}") from None
        newest = time.time() - self._age_s
        return [one for one in found if one.is_file() and one.stat().st_mtime <= newest]

    def latest_offsets(self, start: Offsets, limit: ReadLimit) -> Offsets:
        for path in self._files():
            key = partition_key({"fileName": path.name})
            stored = start.get(key, {})
            status = path.stat()
            identity = f"{status.st_size}-{status.st_mtime_ns}"
            same = stored.get("ottla_file", identity) == identity
            if same and stored.get("ottla_done") is True:
                if self._policy != "NONE":
                    # The worker ended between its commit and the move.
                    self._finish(path, bad=stored.get("ottla_bad") is True)
                continue
            position = to_int(stored.get("offset", 0)) if same else 0
            return {key: self._take(path, identity, position, limit)}
        return start

    def _take(self, path: Path, identity: str, position: int, limit: ReadLimit) -> JsonObject:
        taken, size, done = _Taken(path=None), 0, False
        try:
            opened = self._opened(path, identity, position)
            while len(taken.rows) < limit.records and size < limit.bytes:
                row = next(opened.rows, None)
                if row is None:
                    done = True
                    break
                taken.rows.append(row)
                size += row.size
                opened.taken += 1
        except (BadRow, UnicodeError) as error:
            self._close()
            if self._halt:
                raise TaskFailed(f"{path}: {error}. Mend the file, or set halt.on.error=false") from None
            _logger.warning("%s goes to %s: %s", path, self._errors, error)
            done = taken.bad = True
        offset: JsonObject = {"offset": position + len(taken.rows), "ottla_file": identity}
        if done:
            taken.path = path
            offset["ottla_done"] = True
            if taken.bad:
                offset["ottla_bad"] = True
        self._taken = taken
        return offset

    def _opened(self, path: Path, identity: str, position: int) -> _Open:
        """The file behind the rows that are in Kafka."""
        found = self._open
        if found is not None and (found.path, found.identity, found.taken) == (path, identity, position):
            return found
        self._close()
        file = path.open(encoding=self._charset, newline="")
        found = self._open = _Open(path, identity, file, self._rows(file))
        for _ in range(position):
            if next(found.rows, None) is None:
                break
        found.taken = position
        return found

    def splits(self, start: Offsets, end: Offsets, max_splits: int) -> Sequence[str]:
        return ["rows"]

    def read(self, split: str) -> Iterator[Read]:
        for row in self._taken.rows:
            key = None
            if self._key_schema is not None and isinstance(row.value, Struct):
                values = {at.name: row.value.get(at.name) for at in self._key_schema.fields}
                key = Struct(self._key_schema, values)
            yield SourceRecord(
                self._topic, row.value, row.schema, key, self._key_schema if key is not None else None
            )

    def commit(self, end: Offsets) -> None:
        taken, self._taken = self._taken, _Taken()
        if taken.path is not None:
            self._close()
            if self._policy != "NONE":
                self._finish(taken.path, bad=taken.bad)

    def _finish(self, path: Path, *, bad: bool) -> None:
        folder = self._errors if bad else self._finished
        if self._policy == "DELETE" and not bad:
            path.unlink(missing_ok=True)
            return
        try:
            path.replace(Path(folder) / path.name)
        except OSError as error:
            raise TaskFailed(f"{path} cannot be moved to {folder}: {error.strerror}") from None

    def _close(self) -> None:
        if self._open is not None:
            self._open.file.close()
            self._open = None

    def stop(self) -> None:
        self._close()


class SpoolDirSource(SourceConnector):
    """What the four kinds of files have in common."""

    version = "2.0.67"
    file_keys: ClassVar[ConfigDef] = ConfigDef([])

    @classmethod
    def config_def(cls) -> ConfigDef:
        """The original's keys."""
        return _KEYS | cls.file_keys

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """Patterns, schemas, and where files go."""
        found: dict[str, list[str]] = {}
        try:
            re.compile(config.get("input.file.pattern", ""))
        except re.error as error:
            found["input.file.pattern"] = [f"the pattern cannot be read: {error}"]
        for key in ("value.schema", "key.schema"):
            try:
                spool_schema(config.get(key, ""), key)
            except ConfigInvalid as error:
                found[key] = [str(error)]
        if config.get("cleanup.policy", "MOVE") == "MOVE" and not config.get("finished.path"):
            found["finished.path"] = ["write where files go that are done, or set cleanup.policy to DELETE"]
        if config.get("halt.on.error") == "false" and not config.get("error.path"):
            found["error.path"] = ["halt.on.error=false needs a folder for damaged files"]
        return found

    @abstractmethod
    def rows(self) -> Rows:
        """How a file is read."""

    def reader(self) -> SourceReader:
        """A reader of the folder."""
        return SpoolReader(self.values, self.rows())

    def check_offset(self, partition: Mapping[str, Json] | None, offset: Mapping[str, Json] | None) -> None:
        """Offsets of files, in rows."""
        if partition is not None and "fileName" not in partition:
            raise ConnectError('the partition of a SpoolDir source is {"fileName": name}')
        if offset is not None and not isinstance(offset.get("offset"), int):
            raise ConnectError('the offset of a SpoolDir source has a number "offset"')


class SpoolDirCsv(SpoolDirSource):
    """`SpoolDirCsvSourceConnector`."""

    java_classes = (f"{_PACKAGE}.SpoolDirCsvSourceConnector",)
    file_keys = ConfigDef(
        [
            ConfigKey("csv.first.row.as.header", "BOOLEAN", False, documentation="Names in the first row"),
            ConfigKey("csv.separator.char", "INT", 44, "LOW", "The number of the separator's character"),
            ConfigKey("csv.quote.char", "INT", 34, "LOW", "The number of the quote's character"),
            ConfigKey(
                "csv.escape.char", "INT", 92, "LOW", "The number of the escape's character; 0 for none"
            ),
            ConfigKey("csv.skip.lines", "INT", 0, "LOW", "Lines at the start that are no rows"),
            ConfigKey(
                "csv.null.field.indicator", default="NEITHER", valid="[NEITHER, EMPTY_SEPARATORS, BOTH]"
            ),
        ]
    )

    def rows(self) -> Rows:
        """Rows of comma separated values."""
        values = self.values
        escape = values["csv.escape.char"]
        return CsvFormat(
            values["csv.first.row.as.header"],
            chr(values["csv.separator.char"]),
            chr(values["csv.quote.char"]),
            chr(escape) if escape else None,
            values["csv.skip.lines"],
            values["csv.null.field.indicator"] != "NEITHER",
            spool_schema(values["value.schema"], "value.schema"),
        )


class SpoolDirJson(SpoolDirSource):
    """`SpoolDirJsonSourceConnector`."""

    java_classes = (f"{_PACKAGE}.SpoolDirJsonSourceConnector",)

    def rows(self) -> Rows:
        """JSON objects with a schema."""
        return JsonFormat(spool_schema(self.values["value.schema"], "value.schema"))


class SpoolDirSchemaLessJson(SpoolDirSource):
    """`SpoolDirSchemaLessJsonSourceConnector`."""

    java_classes = (f"{_PACKAGE}.SpoolDirSchemaLessJsonSourceConnector",)

    def rows(self) -> Rows:
        """JSON values as texts."""
        return json_texts


class SpoolDirLines(SpoolDirSource):
    """`SpoolDirLineDelimitedSourceConnector`."""

    java_classes = (f"{_PACKAGE}.SpoolDirLineDelimitedSourceConnector",)

    def rows(self) -> Rows:
        """Lines as texts."""
        return lines
