"""Kafka Connect 4.3.1 as the judge: its class path, its converters and transforms, and random records."""

from __future__ import annotations

import base64
import functools
import json
import random
import subprocess
from pathlib import Path
from typing import Any

from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.data import schema as schemas
from ottla.connect.data.schema import Schema, Struct, Type
from ottla.testing.apache import LEAN_JVM_FLAGS, VERSION
from ottla.testing.maven import classpath

_PROGRAM = Path(__file__).parent / "java" / "ConnectOracle.java"
_ARTIFACTS = ("connect-runtime", "connect-file", "connect-json", "connect-transforms", "connect-mirror")


@functools.cache
def connect_classpath() -> str:
    """Kafka Connect with its file connectors."""
    return classpath(*(f"org.apache.kafka:{one}:{VERSION}" for one in _ARTIFACTS))


def ask(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Kafka's answers to many requests."""
    done = subprocess.run(
        ["java", *LEAN_JVM_FLAGS, "-cp", connect_classpath(), str(_PROGRAM)],
        input="".join(json.dumps(one) + "\n" for one in requests),
        capture_output=True,
        encoding="utf-8",
        timeout=240,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(requests), done.stderr[-2000:]
    return answers


def b64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def envelope(schema: Schema | None, value: Any, *, with_schema: bool = True) -> bytes | None:
    return JsonConverter({"schemas.enable": str(with_schema).lower()}).from_connect("t", schema, value)


_NAMES = ("id", "name", "when", "flag", "nested", "list", "amount", "ratio", "day", "data", "text")


def random_schema(drawn: random.Random, depth: int = 0) -> Schema:
    kinds: list[Any] = [
        *(schemas.INT8, schemas.INT16, schemas.INT32, schemas.INT64, schemas.FLOAT32, schemas.FLOAT64),
        *(schemas.BOOLEAN, schemas.STRING, schemas.BYTES, schemas.TIMESTAMP_SCHEMA, schemas.DATE_SCHEMA),
        *(schemas.TIME_SCHEMA, schemas.decimal_schema(2)),
    ]
    if depth < 2:
        kinds += ["array", "struct", "map"]
    kind = drawn.choice(kinds)
    if kind == "array":
        kind = schemas.array(random_schema(drawn, 2))
    elif kind == "map":
        kind = schemas.map_of(schemas.STRING, random_schema(drawn, 2))
    elif kind == "struct":
        kind = random_struct_schema(drawn, depth + 1)
    if drawn.random() < 0.4:
        kind = schemas.optional(kind)
    elif kind.type in (Type.INT32, Type.STRING) and kind.name is None and drawn.random() < 0.2:
        kind = schemas.changed(kind, default=5 if kind.type is Type.INT32 else "d")
    return kind


def random_struct_schema(drawn: random.Random, depth: int = 0) -> Schema:
    names = drawn.sample(_NAMES, drawn.randrange(1, 6))
    attributes: dict[str, Any] = {}
    if drawn.random() < 0.5:
        attributes = {"name": "com.acme.Thing", "version": drawn.choice([None, 3])}
    return schemas.struct([(one, random_schema(drawn, depth)) for one in names], **attributes)


def random_value(schema: Schema, drawn: random.Random) -> Any:
    import datetime
    import decimal

    if schema.optional and drawn.random() < 0.25:
        return None
    if schema.name == schemas.TIMESTAMP:
        return datetime.datetime(2024, 2, 29, 12, 30, 15, 123000, datetime.UTC) + datetime.timedelta(
            days=drawn.randrange(-9000, 9000)
        )
    if schema.name == schemas.DATE:
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=drawn.randrange(1, 30000))
    if schema.name == schemas.TIME:
        return datetime.time(drawn.randrange(24), drawn.randrange(60), 7, 8000)
    if schema.name == schemas.DECIMAL:
        return decimal.Decimal(drawn.randrange(-(10**9), 10**9)).scaleb(-2)
    low, high = schemas.BOUNDS.get(schema.type, (0, 0))
    if schema.type in schemas.BOUNDS:
        return drawn.choice([0, 1, low, high, drawn.randrange(low, high)])
    if schema.type is Type.FLOAT32:
        return drawn.choice([0.0, 1.5, -2.25, 16777216.0, 0.0009765625])
    if schema.type is Type.FLOAT64:
        return drawn.choice(
            [0.0, 1e10, 3.14, -1e-7, 123456.789, drawn.random() * 10 ** drawn.randrange(-20, 20)]
        )
    if schema.type is Type.BOOLEAN:
        return drawn.random() < 0.5
    if schema.type is Type.STRING:
        return drawn.choice(["", "a", "12", "true", "2024-02-29 08:05:06", "ünï\n\x1f", "1.5", "-7"])
    if schema.type is Type.BYTES:
        return drawn.randbytes(drawn.randrange(5))
    if schema.type is Type.ARRAY:
        return [random_value(schema.value_schema, drawn) for _ in range(drawn.randrange(3))]
    if schema.type is Type.MAP:
        return {
            f"k{number}": random_value(schema.value_schema, drawn) for number in range(drawn.randrange(3))
        }
    made = Struct(schema)
    for at in schema.fields:
        made.put(at.name, random_value(at.schema, drawn))
    return made


def random_json(drawn: random.Random, depth: int = 0) -> Any:
    """A map without a schema."""
    found: dict[str, Any] = {}
    for name in drawn.sample(_NAMES, drawn.randrange(0, 6)):
        choices: list[Any] = [None, True, 0, -7, 2**40, 1.5, "12", "x", "2024-02-29 08:05:06", [1, "a"]]
        found[name] = (
            random_json(drawn, depth + 1) if depth < 2 and drawn.random() < 0.2 else drawn.choice(choices)
        )
    return found
