"""What the MongoDB source and sink share: the client, its failures as sentences, and values as BSON."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from bson import json_util
from bson.decimal128 import Decimal128
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.errors import AutoReconnect, ConfigurationError, OperationFailure, PyMongoError

from ottla.connect.config.definitions import ConfigKey
from ottla.connect.data.schema import ConnectValue, Struct
from ottla.connect.failures import ConnectError, DataError, Retriable, TaskFailed

Bson: TypeAlias = Any
"""A value of MongoDB: whatever its types are."""
Document: TypeAlias = dict[str, Bson]
Client: TypeAlias = "MongoClient[Document]"

CONNECTION: Final = (
    ConfigKey(
        "connection.uri",
        "PASSWORD",
        "mongodb://localhost:27017/?replicaSet=rs0",
        "HIGH",
        "mongodb://user:password@host:port/",
    ),
    ConfigKey("database", default="", importance="HIGH", documentation="The database"),
    ConfigKey("collection", default="", importance="HIGH", documentation="The collection"),
)
_TIMEOUT_MS: Final = 10_000
_REFUSED_LOGIN: Final = frozenset((13, 18))
_HISTORY_LOST: Final = 286
_NO_CHANGE_STREAMS: Final = frozenset((59, 40324, 40573))
_SHOWN: Final = 300


def shown(uri: str) -> str:
    """An address without its login and options."""
    return f"mongodb://{urlsplit(uri).netloc.rpartition('@')[2]}"


def connect(uri: str) -> Client:
    """A client. It connects when it is first used."""
    try:
        return MongoClient(
            uri, serverSelectionTimeoutMS=_TIMEOUT_MS, connectTimeoutMS=_TIMEOUT_MS, tz_aware=True
        )
    except (PyMongoError, ValueError) as error:
        raise TaskFailed(f"connection.uri is no address of MongoDB: {str(error)[:_SHOWN]}") from None


def failed(uri: str, error: PyMongoError) -> ConnectError:
    """A failure as a sentence, by whether it passes."""
    where, words = shown(uri), " ".join(str(error).split())[:_SHOWN]
    code = error.code if isinstance(error, OperationFailure) else None
    if code in _REFUSED_LOGIN:
        return TaskFailed(f"{where} refuses the login: see connection.uri and the user's roles ({words})")
    if code == _HISTORY_LOST:
        return TaskFailed(
            f"{where} has forgotten the changes behind the offset: reset the connector's offsets to go on from now, or "
            f"with startup.mode=copy_existing from all documents ({words})"
        )
    if code in _NO_CHANGE_STREAMS:
        return TaskFailed(f"{where} has no change streams: they need a replica set ({words})")
    if isinstance(error, ConfigurationError):
        return TaskFailed(f"{where} cannot be used: {words}")
    if isinstance(error, AutoReconnect) or error.has_error_label("RetryableWriteError") or error.timeout:
        return Retriable(f"{where} cannot be reached: {words}")
    return TaskFailed(f"{where} does not do it: {words}")


def as_document(value: ConnectValue, what: str) -> Document:
    """A record's key or value as a document: a struct, a map, JSON text or BSON bytes."""
    if isinstance(value, str):
        try:
            value = json_util.loads(value)
        except (ValueError, TypeError, BSONError, RecursionError) as error:
            raise DataError(f"{what} is text that is not JSON: {str(error)[:_SHOWN]}") from None
    if isinstance(value, bytes):
        try:
            return dict(RawBSONDocument(value).items())
        except BSONError as error:
            raise DataError(f"{what} has bytes that are not BSON: {str(error)[:_SHOWN]}") from None
    found = as_bson(value)
    if not isinstance(found, dict):
        raise DataError(f"{what} is no object with fields, which a document is: see the converters")
    return found


def as_bson(value: ConnectValue) -> Bson:
    """A value of Connect as BSON has it: dates and times of day are dates, decimals are Decimal128."""
    if isinstance(value, Struct):
        return {at.name: as_bson(value.get(at.name)) for at in value.schema.fields}
    if isinstance(value, dict):
        return {str(key): as_bson(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_bson(one) for one in value]
    if isinstance(value, Decimal):
        try:
            return Decimal128(value)
        except ArithmeticError:
            raise DataError(f"{value} has more digits than the 34 of MongoDB's decimals") from None
    if isinstance(value, datetime.datetime):
        return value
    if isinstance(value, datetime.date):
        return datetime.datetime(value.year, value.month, value.day, tzinfo=datetime.UTC)
    if isinstance(value, datetime.time):
        return datetime.datetime.combine(datetime.date(1970, 1, 1), value, tzinfo=datetime.UTC)
    return value
