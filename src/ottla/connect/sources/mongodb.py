"""MongoDB source: the changes of collections, by change streams, each once.

The offset is the resume token of the last change. With `startup.mode=copy_existing` the documents that are there come
first, in the order of their `_id`; the token was taken before, so that no change in between is missed. What was read
is kept until it is committed. Keys, records and offsets are those of MongoDB's connector.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import bson
from bson import Timestamp, json_util
from bson.errors import BSONError
from pymongo.change_stream import ChangeStream
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import PyMongoError

from ottla.connect.config.definitions import ConfigDef, ConfigKey, ConfigValues
from ottla.connect.data.record import SourceRecord
from ottla.connect.data.schema import BYTES, STRING, ConnectValue, Schema
from ottla.connect.failures import ConnectError, TaskFailed
from ottla.connect.mongo import CONNECTION, Client, Document, connect, failed, shown
from ottla.connect.spi import Offsets, ReadLimit, SourceConnector, SourceReader, partition_key
from ottla.json_types import Json

_FORMATTERS: Final = {
    "DefaultJson": json_util.LEGACY_JSON_OPTIONS,
    "ExtendedJson": json_util.CANONICAL_JSON_OPTIONS,
    "SimplifiedJson": json_util.RELAXED_JSON_OPTIONS,
}
_START: Final = "startup.mode.timestamp.start.at.operation.time"
_TOKEN: Final = "_id"
_COPY: Final = "copy"
_AWAIT_MS: Final = 500
_PAUSE_S: Final = 0.02

Pipeline: TypeAlias = list[Document]


class MongoSource(SourceConnector):
    """`com.mongodb.kafka.connect.MongoSourceConnector`."""

    java_classes = ("com.mongodb.kafka.connect.MongoSourceConnector",)
    version = "1.16.0"
    extra = "mongodb"

    @classmethod
    def config_def(cls) -> ConfigDef:
        """MongoDB's keys."""
        formats = ", ".join(_FORMATTERS)
        return ConfigDef(
            [
                *CONNECTION,
                ConfigKey("pipeline", default="[]", documentation="Stages that changes go through, as JSON"),
                ConfigKey("change.stream.full.document", default="", documentation="updateLookup, required"),
                ConfigKey("publish.full.document.only", "BOOLEAN", False, "HIGH", "The document alone"),
                ConfigKey("publish.full.document.only.tombstone.on.delete", "BOOLEAN", False, "HIGH", ""),
                ConfigKey("topic.prefix", default="", documentation="In front of database.collection"),
                ConfigKey("topic.suffix", default="", documentation="Behind database.collection"),
                ConfigKey("topic.separator", default=".", documentation="Between the parts of a topic"),
                ConfigKey("output.format.key", default="json", valid="[json, bson]"),
                ConfigKey("output.format.value", default="json", valid="[json, bson]"),
                ConfigKey("output.json.formatter", default="DefaultJson", documentation=formats),
                ConfigKey("startup.mode", default="latest", valid="[latest, copy_existing, timestamp]"),
                ConfigKey(
                    _START, default="", documentation="Of timestamp: seconds since 1970, or an ISO time"
                ),
                ConfigKey("poll.await.time.ms", "INT", 5000, "LOW", "Has no effect: changes are waited for"),
                ConfigKey("poll.max.batch.size", "INT", 1000, "LOW", "Changes of a cycle", valid="[1,...]"),
                ConfigKey(
                    "heartbeat.interval.ms", "LONG", 0, documentation="Offsets without changes; 0: none"
                ),
                ConfigKey("offset.partition.name", default="", documentation="Another name in the offsets"),
            ]
        )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """The pipeline, and what is watched."""
        found: dict[str, list[str]] = {}
        try:
            stages = json_util.loads(config.get("pipeline") or "[]")
            good = isinstance(stages, list) and all(isinstance(one, dict) for one in stages)
        except (ValueError, TypeError, BSONError, RecursionError):
            good = False
        if not good:
            found["pipeline"] = [
                'write a list of stages as JSON, like [{"$match": {"operationType": "insert"}}]'
            ]
        if config.get("collection") and not config.get("database"):
            found["database"] = ["a collection needs its database"]
        if config.get("startup.mode") == "copy_existing" and not config.get("collection"):
            found["collection"] = ["startup.mode=copy_existing copies one collection: name it"]
        try:
            if config.get("startup.mode") == "timestamp":
                _operation_time(config.get(_START, ""))
        except ValueError:
            found[_START] = ["write a number of seconds since 1970, or a time like 2026-01-31T12:00:00Z"]
        formatter = (config.get("output.json.formatter") or "DefaultJson").rpartition(".")[2]
        if formatter not in _FORMATTERS:
            text = f"there is no {formatter}: known are {', '.join(_FORMATTERS)}"
            found["output.json.formatter"] = [text]
        return found

    def reader(self) -> SourceReader:
        """A reader with one change stream."""
        return MongoReader(self.values)

    def check_offset(self, partition: Mapping[str, Json] | None, offset: Mapping[str, Json] | None) -> None:
        """A namespace, and a resume token as JSON."""
        if partition is not None and set(partition) != {"ns"}:
            raise ConnectError(
                'the partition of a MongoDB source is {"ns":"mongodb://host/database.collection"}'
            )
        token = (offset or {}).get(_TOKEN)
        if offset is not None and not isinstance(token, str):
            raise ConnectError('the offset of a MongoDB source is {"_id":"<resume token as JSON>"}')


class MongoReader(SourceReader):
    """Watches a deployment, a database or a collection."""

    def __init__(self, values: ConfigValues) -> None:
        self._values = dict(values)
        self._uri = str(values["connection.uri"])
        watched = ".".join(filter(None, (values["database"], values["collection"])))
        name = values["offset.partition.name"] or f"{shown(self._uri)}/{watched}"
        self._key = partition_key({"ns": name})
        self._json = _FORMATTERS[values["output.json.formatter"].rpartition(".")[2]]
        self._start = _operation_time(values[_START]) if values["startup.mode"] == "timestamp" else None
        self._client: Client | None = None
        self._stream: ChangeStream[Document] | None = None
        self._position: str | None = None
        """The token that the open stream goes on from, as in the offset."""
        self._kept: tuple[Offsets, list[Document]] | None = None
        self._beat_at = 0.0

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_client": None, "_stream": None}

    def _connected(self) -> Client:
        if self._client is None:
            self._client = connect(self._uri)
        return self._client

    def _collection(self) -> Collection[Document]:
        return self._connected()[self._values["database"]][self._values["collection"]]

    def _opened(self, token: str | None) -> ChangeStream[Document]:
        """The stream behind a token; from now on for None."""
        if self._stream is not None and self._position == token and token is not None:
            return self._stream
        self._close_stream()
        values, client = self._values, self._connected()
        target: Client | Database[Document] | Collection[Document] = client
        if values["database"]:
            target = client[values["database"]]
        if values["collection"]:
            target = self._collection()
        pipeline: Pipeline = json_util.loads(values["pipeline"])
        self._stream = target.watch(
            pipeline,
            full_document=values["change.stream.full.document"] or self._full_document(),
            resume_after=json_util.loads(token) if token is not None else None,
            start_at_operation_time=self._start if token is None else None,
            max_await_time_ms=_AWAIT_MS,
        )
        self._position = token
        assert self._stream is not None
        return self._stream

    def _full_document(self) -> str | None:
        return "updateLookup" if self._values["publish.full.document.only"] else None

    def initial_offsets(self) -> Offsets:
        """The end of the log, as it is now; a time of the log needs no token."""
        if self._start is not None:
            return {}
        try:
            stream = self._opened(None)
            change = stream.try_next() if stream.resume_token is None else None
            token = change[_TOKEN] if change is not None else stream.resume_token
        except PyMongoError as error:
            raise failed(self._uri, error) from error
        if token is None:
            return {}
        self._close_stream()
        offset: dict[str, Json] = {_TOKEN: json_util.dumps(token)}
        if self._values["startup.mode"] == "copy_existing":
            offset[_COPY] = ""
        return {self._key: offset}

    def latest_offsets(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Reads what follows, up to the limit."""
        offset = start.get(self._key)
        if offset is None and self._start is None:
            # The server gave no token at the start: it has none before its first change.
            first = self.initial_offsets()
            self._kept = (first, [])
            return first
        offset = offset or {}
        most = min(limit.records, self._values["poll.max.batch.size"])
        try:
            end, items = self._copied(offset, most) if _COPY in offset else self._changes(offset, most, limit)
        except PyMongoError as error:
            self._close_stream()
            raise failed(self._uri, error) from error
        if end == offset:
            return start
        found: Offsets = {self._key: end}
        self._kept = (found, items)
        return found

    def _copied(self, offset: Mapping[str, Json], most: int) -> tuple[dict[str, Json], list[Document]]:
        """The next documents of a collection, as insertions. The end of it is an offset without `copy`."""
        last = str(offset[_COPY])
        where: Document = {"_id": {"$gt": json_util.loads(last)["_id"]}} if last else {}
        documents = list(self._collection().find(where).sort("_id", 1).limit(most))
        if not documents:
            return {_TOKEN: offset[_TOKEN]}, []
        name = {"db": self._values["database"], "coll": self._values["collection"]}
        items = [
            {
                "_id": {"_id": one["_id"], "copyingData": True},
                "operationType": "insert",
                "ns": name,
                "documentKey": {"_id": one["_id"]},
                "fullDocument": one,
            }
            for one in documents
        ]
        return {_TOKEN: offset[_TOKEN], _COPY: json_util.dumps({"_id": documents[-1]["_id"]})}, items

    def _changes(
        self, offset: Mapping[str, Json], most: int, limit: ReadLimit
    ) -> tuple[dict[str, Json], list[Document]]:
        token = str(offset[_TOKEN]) if offset else None
        stream = self._stream if token is None and self._stream is not None else self._opened(token)
        items: list[Document] = []
        size = 0
        while len(items) < most and size < limit.bytes:
            change = stream.try_next()
            if change is None:
                break
            items.append(change)
            size += len(bson.encode(change))
        if items:
            self._position = json_util.dumps(items[-1][_TOKEN])
            return {_TOKEN: self._position}, items
        return dict(offset) if token is None else {_TOKEN: self._beat(stream, token)}, []

    def _beat(self, stream: ChangeStream[Document], token: str) -> str:
        """A newer token though nothing changed, so that a quiet collection's offset does not fall behind the log."""
        every_s = self._values["heartbeat.interval.ms"] / 1000
        if not every_s or stream.resume_token is None or time.monotonic() - self._beat_at < every_s:
            return token
        self._beat_at = time.monotonic()
        self._position = json_util.dumps(stream.resume_token)
        return self._position

    def splits(self, start: Offsets, end: Offsets, max_splits: int) -> Sequence[int]:
        """One, of what was read."""
        if self._kept is None or self._kept[0][self._key] != end[self._key]:
            raise TaskFailed("what was read of MongoDB is gone: the connector must start again")
        return [0] if self._kept[1] else []

    def read(self, split: int) -> Iterator[SourceRecord]:
        """The records of the changes."""
        assert self._kept is not None
        for change in self._kept[1]:
            values = self._values
            name = change.get("ns") or {"db": values["database"], "coll": values["collection"]}
            parts = (values["topic.prefix"], name.get("db", ""), name.get("coll", ""), values["topic.suffix"])
            topic = values["topic.separator"].join(one for one in parts if one)
            schema, key = self._encoded({"_id": change[_TOKEN]}, "key")
            document: Document | None = change
            if values["publish.full.document.only"]:
                document = change.get("fullDocument")
                if document is None and not values["publish.full.document.only.tombstone.on.delete"]:
                    continue
                if values["publish.full.document.only.tombstone.on.delete"]:
                    schema, key = self._encoded(change.get("documentKey") or {}, "key")
            if document is None:
                yield SourceRecord(topic, None, None, key, schema)
                continue
            value_schema, value = self._encoded(document, "value")
            yield SourceRecord(topic, value, value_schema, key, schema)

    def _encoded(self, document: Document, part: str) -> tuple[Schema, ConnectValue]:
        if self._values[f"output.format.{part}"] == "bson":
            return BYTES, bson.encode(document)
        return STRING, json_util.dumps(document, json_options=self._json)

    def commit(self, end: Offsets) -> None:
        """What was read is written."""
        self._kept = None

    def wait(self, timeout_s: float, stopping: Callable[[float], bool]) -> None:
        """The stream waits by itself, on servers that know how to."""
        stopping(min(timeout_s, _PAUSE_S))

    def describe(self) -> list[str]:
        """Opens a change stream."""
        try:
            with self._opened(None):
                version = self._connected().server_info()["version"]
        except PyMongoError as error:
            raise failed(self._uri, error) from error
        return [f"{shown(self._uri)} is MongoDB {version} and has change streams"]

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def stop(self) -> None:
        """Closes the connections."""
        self._close_stream()
        if self._client is not None:
            self._client.close()
            self._client = None


def _operation_time(text: str) -> Timestamp:
    """A time of the log, from a number of seconds or an ISO time."""
    if text.strip().isdigit():
        return Timestamp(int(text), 0)
    found = datetime.datetime.fromisoformat(text.strip())
    return Timestamp(found if found.tzinfo else found.replace(tzinfo=datetime.UTC), 0)
