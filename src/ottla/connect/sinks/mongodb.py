"""MongoDB sink: records as documents, replaced, updated, inserted or deleted by their `_id`.

An `_id` follows from the record, also where MongoDB's connector makes a random one: a record that is written again
leaves the same document. Keys are those of MongoDB's connector.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from bson import ObjectId
from bson.errors import BSONError, InvalidDocument
from pymongo import DeleteOne, ReplaceOne, UpdateOne
from pymongo.errors import BulkWriteError, DocumentTooLarge, PyMongoError

from ottla.connect.config.definitions import ConfigDef, ConfigKey, ConfigValues
from ottla.connect.data.record import SinkRecord
from ottla.connect.failures import ConnectError, DataError, Retriable
from ottla.connect.mongo import (
    CONNECTION,
    Bson,
    Client,
    Document,
    as_bson,
    as_document,
    connect,
    failed,
    shown,
)
from ottla.connect.spi import Finding, Refuse, SinkConnector, SinkCycle, SinkWriter

_IDS: Final = (
    *("BsonOidStrategy", "KafkaMetaDataStrategy", "FullKeyStrategy", "ProvidedInKeyStrategy"),
    *("ProvidedInValueStrategy", "PartialKeyStrategy", "PartialValueStrategy", "UuidStrategy"),
)
_OF_KEYS: Final = ("FullKeyStrategy", "ProvidedInKeyStrategy", "PartialKeyStrategy")
_WRITES: Final = (
    *("DefaultWriteModelStrategy", "ReplaceOneDefaultStrategy", "InsertOneDefaultStrategy"),
    *("UpdateOneDefaultStrategy", "DeleteOneDefaultStrategy"),
)
_MOST: Final = 1000
_PASSING: Final = frozenset((6, 7, 89, 91, 112, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436))
"""Codes of servers that shut down, elect, or lost a conflict of writes."""

Operation: TypeAlias = "ReplaceOne[Document] | UpdateOne | DeleteOne"


class MongoSink(SinkConnector):
    """`com.mongodb.kafka.connect.MongoSinkConnector`."""

    java_classes = ("com.mongodb.kafka.connect.MongoSinkConnector",)
    version = "1.16.0"
    extra = "mongodb"

    @classmethod
    def config_def(cls) -> ConfigDef:
        """MongoDB's keys."""
        return ConfigDef(
            [
                *CONNECTION,
                ConfigKey("document.id.strategy", default="BsonOidStrategy", documentation=", ".join(_IDS)),
                ConfigKey(
                    "document.id.strategy.overwrite.existing", "BOOLEAN", False, "LOW", "Replace `_id`"
                ),
                *(
                    ConfigKey(
                        f"document.id.strategy.partial.{part}.projection.{what}", kind, default, "LOW", ""
                    )
                    for part in ("key", "value")
                    for what, kind, default in (("type", "STRING", ""), ("list", "LIST", []))
                ),
                ConfigKey("writemodel.strategy", default=_WRITES[0], documentation=", ".join(_WRITES)),
                ConfigKey("delete.on.null.values", "BOOLEAN", False, documentation="A null value deletes"),
                ConfigKey(
                    "max.batch.size", "INT", 0, documentation="Of one request; 0: 1000", valid="[0,...]"
                ),
            ]
        )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """Names of strategies, and what deletions need."""
        found: dict[str, list[str]] = {}
        if not config.get("database"):
            found["database"] = ["write the database that documents go to"]
        ids = _short(config.get("document.id.strategy", _IDS[0]))
        for key, name, known in (
            ("document.id.strategy", ids, _IDS),
            ("writemodel.strategy", _short(config.get("writemodel.strategy", _WRITES[0])), _WRITES),
        ):
            if name not in known:
                found[key] = [f"there is no {name}: known are {', '.join(known)}"]
        if config.get("delete.on.null.values", "").lower() == "true" and ids not in _OF_KEYS:
            found["delete.on.null.values"] = [
                f"a null value has only its key: set document.id.strategy to one of {', '.join(_OF_KEYS)}"
            ]
        for part in ("key", "value"):
            prefix = f"document.id.strategy.partial.{part}.projection."
            if ids == f"Partial{part.capitalize()}Strategy" and (
                not config.get(f"{prefix}list")
                or config.get(f"{prefix}type") not in ("allowlist", "blocklist")
            ):
                found[f"{prefix}type"] = [f"{ids} needs {prefix}list, and allowlist or blocklist here"]
        return found

    def check(self) -> list[Finding]:
        """Asks for an answer."""
        writer = MongoWriter(self.values)
        try:
            return [Finding(True, f"{writer.where} is MongoDB {writer.server()}")]
        except ConnectError as error:
            return [Finding(False, str(error))]
        finally:
            writer.stop()

    def writer(self) -> SinkWriter:
        """A writer with one client."""
        return MongoWriter(self.values)


class MongoWriter(SinkWriter):
    """One client of one connector."""

    idempotent = True  # by `_id`
    parallel = True  # records of one key are in one partition

    def __init__(self, values: ConfigValues) -> None:
        self._values = dict(values)
        self._uri = str(values["connection.uri"])
        self._client: Client | None = None
        self._ids = _short(values["document.id.strategy"])
        self._writes = _short(values["writemodel.strategy"])
        self.where = shown(self._uri)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_client": None}

    def _connected(self) -> Client:
        if self._client is None:
            self._client = connect(self._uri)
        return self._client

    def server(self) -> str:
        """The version that answers."""
        try:
            return str(self._connected().server_info()["version"])
        except PyMongoError as error:
            raise failed(self._uri, error) from error

    def write(self, cycle: SinkCycle, records: Iterator[SinkRecord], refuse: Refuse) -> int:
        """Sends the operations in requests of bounded size, in the order of the records."""
        most = self._values["max.batch.size"] or _MOST
        waiting: dict[str, list[tuple[SinkRecord, Operation]]] = {}
        count = 0
        for record in records:
            try:
                operation = self._operation(record)
            except (DataError, InvalidDocument, BSONError) as error:
                refuse(record, error)
                continue
            if operation is None:
                continue
            count += 1
            name = self._values["collection"] or record.topic
            waiting.setdefault(name, []).append((record, operation))
            if len(waiting[name]) >= most:
                self._send(name, waiting.pop(name), refuse)
        for name, those in waiting.items():
            self._send(name, those, refuse)
        return count

    def _operation(self, record: SinkRecord) -> Operation | None:
        place = _place(record)
        if record.value is None:
            if not self._values["delete.on.null.values"]:
                raise DataError(
                    f"record {place} has a null value: set delete.on.null.values=true, or drop it with a transform"
                )
            return DeleteOne({"_id": self._id(record, {}, place)})
        document = as_document(record.value, f"the value of record {place}")
        if "_id" not in document or self._values["document.id.strategy.overwrite.existing"]:
            document["_id"] = self._id(record, document, place)
        which = {"_id": document["_id"]}
        if self._writes == "DeleteOneDefaultStrategy":
            return DeleteOne(which)
        if self._writes == "InsertOneDefaultStrategy":
            # A record that comes again finds its document, and changes nothing.
            return UpdateOne(which, {"$setOnInsert": document}, upsert=True)
        if self._writes == "UpdateOneDefaultStrategy":
            fields = {name: one for name, one in document.items() if name != "_id"}
            return UpdateOne(which, {"$set": fields} if fields else {"$setOnInsert": which}, upsert=True)
        return ReplaceOne(which, document, upsert=True)

    def _id(self, record: SinkRecord, document: Document, place: str) -> Bson:
        match self._ids:
            case "BsonOidStrategy":
                return ObjectId(hashlib.sha256(place.encode()).digest()[:12])
            case "UuidStrategy":
                return str(uuid.uuid5(uuid.NAMESPACE_OID, place))
            case "KafkaMetaDataStrategy":
                return f"{record.original_topic}#{record.original_partition}#{record.offset}"
            case "ProvidedInValueStrategy":
                return _field(document, "_id", f"the value of record {place}")
            case "PartialValueStrategy":
                return self._projected(document, "value")
        if record.key is None:
            raise DataError(f"record {place} has no key, which names its document: see document.id.strategy")
        what = f"the key of record {place}"
        if self._ids == "FullKeyStrategy":
            plain = isinstance(record.key, str) and not record.key.lstrip().startswith("{")
            return (
                record.key
                if plain
                else as_bson(record.key)
                if _is_plain(record.key)
                else as_document(record.key, what)
            )
        key = as_document(record.key, what)
        return (
            _field(key, "_id", what) if self._ids == "ProvidedInKeyStrategy" else self._projected(key, "key")
        )

    def _projected(self, document: Document, part: str) -> Document:
        prefix = f"document.id.strategy.partial.{part}.projection."
        listed = set(self._values[f"{prefix}list"])
        keeps = self._values[f"{prefix}type"] == "allowlist"
        return {name: one for name, one in document.items() if (name in listed) == keeps and name != "_id"}

    def _send(self, name: str, waiting: list[tuple[SinkRecord, Operation]], refuse: Refuse) -> None:
        """One request. Behind an operation that the server refuses, the others go on in the next one."""
        collection = self._connected()[self._values["database"]][name]
        while waiting:
            try:
                collection.bulk_write([operation for _, operation in waiting], ordered=True)
                return
            except BulkWriteError as error:
                details = error.details or {}
                wrong = details.get("writeErrors") or []
                if not wrong:
                    raise Retriable(f"{self.where} did not confirm all writes: {str(error)[:300]}") from error
                at, code = int(wrong[0]["index"]), wrong[0].get("code")
                words = " ".join(str(wrong[0].get("errmsg")).split())[:300]
                if code in _PASSING:
                    raise Retriable(f"{self.where} cannot take all documents now: {words}") from error
                refuse(waiting[at][0], DataError(f"{self.where} refuses the document ({code}): {words}"))
                waiting = waiting[at + 1 :]
            except (InvalidDocument, DocumentTooLarge, BSONError, OverflowError) as error:
                # The library finds these before it sends, and does not say where: the halves tell.
                if len(waiting) == 1:
                    refuse(
                        waiting[0][0], DataError(f"record {_place(waiting[0][0])} is no document: {error}")
                    )
                    return
                middle = len(waiting) // 2
                self._send(name, waiting[:middle], refuse)
                waiting = waiting[middle:]
            except PyMongoError as error:
                raise failed(self._uri, error) from error

    def stop(self) -> None:
        """Closes the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None


def _place(record: SinkRecord) -> str:
    return f"{record.original_topic}-{record.original_partition}@{record.offset}"


def _is_plain(key: object) -> bool:
    return isinstance(key, int | float | bool)


def _field(document: Document, name: str, what: str) -> Bson:
    if name not in document:
        raise DataError(f"{what} has no field {name}, which document.id.strategy takes")
    return document[name]


def _short(name: str) -> str:
    """A strategy's name without its package."""
    return name.rpartition(".")[2]
