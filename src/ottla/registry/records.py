"""The records of `_schemas`, byte for byte as Confluent's registry writes them. Keys are read in any order."""

from __future__ import annotations

from typing import Final

import msgspec

from ottla.json_types import JsonObject, as_int

TOPIC: Final = "_schemas"
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode

Pair = tuple[bytes, bytes | None]
"""A key and a value; a value of None deletes the key."""


class BadRecord(Exception):
    """A record of the topic that is not the registry's."""


def schema_key(subject: str, version: int) -> bytes:
    return _encode({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def scoped_key(kind: str, subject: str | None) -> bytes:
    """The key of CONFIG, MODE and DELETE_SUBJECT; None is the global setting."""
    return _encode({"keytype": kind, "subject": subject, "magic": 0})


def spelled(key: JsonObject) -> bytes | None:
    """The key that this registry writes for the fields of one; None for kinds that it does not write."""
    if key["keytype"] == "SCHEMA":
        return schema_key(str(key["subject"]), as_int(key["version"]))
    if key["keytype"] in ("CONFIG", "MODE", "DELETE_SUBJECT"):
        subject = key.get("subject")
        return scoped_key(str(key["keytype"]), None if subject is None else str(subject))
    return None


NOOP_KEY: Final = b'{"keytype":"NOOP","magic":0}'


def value(fields: JsonObject) -> bytes:
    """A value: its fields in the order given."""
    return _encode(fields)


def read(key: bytes | None, raw: bytes | None) -> tuple[JsonObject, JsonObject | None]:
    """The fields of a key and of a value. Raises BadRecord for what no registry writes."""
    try:
        fields = _decode(key or b"")
        content = None if raw is None or not raw.strip() else _decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadRecord(f"it is not JSON: {error}") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("keytype"), str):
        raise BadRecord("its key has no keytype")
    if content is not None and not isinstance(content, dict):
        raise BadRecord("its value is not an object")
    return fields, content
