"""What the registry and its serializers read: records of `_schemas`, schemas as text, and Avro records."""

from __future__ import annotations

import json
import random

from fuzz.frames import mutate
from fuzz.targets import Target
from ottla.registry import avro, contracts, extras, json_schema
from ottla.registry.errors import InvalidSchema, RegistryError
from ottla.registry.records import schema_key, scoped_key, value
from ottla.registry.state import State
from ottla.schemas.avro_decode import compile_decoder
from ottla.schemas.avro_encode import compile_encoder
from ottla.schemas.errors import InvalidData

_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "sizes", "type": {"type": "map", "values": "double"}, "default": {}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "next", "type": ["null", "Order"], "default": None},
    ],
}
_CART = {
    "$id": "cart.json",
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}, "next": {"$ref": "#"}, "x": {"$ref": "#/$defs/x"}},
    "$defs": {"x": {"anyOf": [{"type": "null"}, {"enum": ["a", "b"]}]}},
    "patternProperties": {"^p": {"type": "array", "items": [{"type": "string"}]}},
    "required": ["n"],
}
_EDGE = b"\xff\xff"
"""Between the key and the value of a record: no JSON has these bytes."""


def _good_pair(rng: random.Random) -> bytearray:
    subject = rng.choice(("orders-value", ":.shop:orders-value"))
    number = rng.randrange(1, 4)
    reference = {"name": "x", "subject": "x", "version": 1}
    whole = {"subject": subject, "version": number, "id": rng.randrange(1, 9), "references": [reference]}
    pairs = (
        (schema_key(subject, number), value({**whole, "schema": json.dumps(_ORDER), "deleted": False})),
        (scoped_key("CONFIG", rng.choice((None, subject))), value({"compatibilityLevel": "FULL"})),
        (scoped_key("MODE", subject), value({"mode": "READONLY"})),
        (scoped_key("DELETE_SUBJECT", subject), value({"subject": subject, "version": number})),
        (scoped_key("CLEAR_SUBJECT", subject), value({"subject": subject})),
    )
    key, content = rng.choice(pairs)
    return bytearray(key + _EDGE + content)


def _feed_pair(rng: random.Random, data: bytes) -> None:
    """The state takes any record; what it holds afterwards can be written and asked for."""
    state = State()
    for offset, pair in enumerate((bytes(_good_pair(rng)), data, bytes(_good_pair(rng)))):
        key, edge, content = pair.partition(_EDGE)
        state.apply(offset, key, content if edge else None)
    for subject in list(state.subjects):
        for one in state.versions(subject, deleted=True):
            one.value()
            state.references_to(one.subject, one.version)
    assert state.next_offset == 3


_RULE = {
    "name": "r",
    "kind": "TRANSFORM",
    "mode": "WRITEREAD",
    "type": "CEL",
    "tags": ["PII"],
    "params": {"a": "b"},
}
_CONTRACT = {
    "metadata": {"tags": {"a": ["PII"]}, "properties": {"owner": "shop"}, "sensitive": ["owner"]},
    "ruleSet": {"domainRules": [_RULE], "migrationRules": [{**_RULE, "mode": "UPGRADE"}]},
}
_RESOURCE = {"resourceName": "t", "resourceNamespace": "-", "resourceId": "1", "resourceType": "topic"}


def _good_extra(rng: random.Random) -> bytearray:
    dek = ("k", "orders-value", "AES256_GCM", rng.randrange(1, 3))
    association = {**_RESOURCE, "subject": "s", "associationType": "value", "lifecycle": "WEAK"}
    pairs = (
        (extras.kek_key("k"), value({"name": "k", "kmsType": "t", "kmsKeyId": "i", "shared": False})),
        (extras.dek_key(dek), value({"kekName": "k", "encryptedKeyMaterial": "AA=="})),
        (extras.association_key(("1", "topic", "value")), value(association)),
        (b"{}", value(_CONTRACT)),
    )
    key, content = rng.choice(pairs)
    return bytearray(key + _EDGE + content)


def _feed_extra(rng: random.Random, data: bytes) -> None:
    """The state takes any record and answers questions afterwards; a contract is refused or can be merged."""
    state = extras.ExtrasState()
    for offset, pair in enumerate((bytes(_good_extra(rng)), data)):
        key, edge, content = pair.partition(_EDGE)
        state.apply(offset, key, content if edge else None)
        try:
            document = json.loads(content)
            layers = document["metadata"], document["ruleSet"]
            contracts.check_metadata(layers[0])
            contracts.check_rule_set(layers[1])
        except (RegistryError, ValueError, LookupError, TypeError, RecursionError):
            continue
        for merge, one, other in zip(
            (contracts.merged_metadata, contracts.merged_rule_set), layers, _CONTRACT.values(), strict=True
        ):
            once = merge([other, one])
            assert contracts.same(merge([once, one]), once)
    for place in state.associations.values():
        assert isinstance(place["resourceName"], str)
    assert state.next_offset == 2


def _good_text(rng: random.Random) -> bytearray:
    return bytearray(json.dumps(rng.choice((_ORDER, _CART))).encode())


def _feed_text(rng: random.Random, data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for parse in (avro.parse, lambda given: json_schema.parse(given, {})):
        try:
            parse(text)
        except InvalidSchema:
            continue


_ROOT = avro.parse(json.dumps(_ORDER)).root
_ENCODE = compile_encoder(_ROOT)
_DECODERS = (compile_decoder(_ROOT), compile_decoder(_ROOT, rows=True, texts=False))


def _order(rng: random.Random, depth: int) -> dict[str, object]:
    return {
        "id": rng.choice((0, -1, 300, 1 << 40)),
        "item": rng.choice((None, "apples" * rng.randrange(30))),
        "tags": ["t"] * rng.randrange(3),
        "sizes": {"s": 1.5} if rng.random() < 0.5 else {},
        "kind": rng.choice(("A", "B")),
        "next": _order(rng, depth - 1) if depth and rng.random() < 0.5 else None,
    }


def _good_record(rng: random.Random) -> bytearray:
    return bytearray(_ENCODE(_order(rng, 3)))


def _feed_record(rng: random.Random, data: bytes) -> None:
    rng.choice(_DECODERS)(data)


SCHEMA_TARGETS = [
    Target("registry records", _good_pair, _feed_pair, mutate, (), share=6),
    Target("registry keys and contracts", _good_extra, _feed_extra, mutate, (), share=4),
    Target("schema texts", _good_text, _feed_text, mutate, (), share=6),
    Target("avro records", _good_record, _feed_record, mutate, (InvalidData,), share=8),
]
