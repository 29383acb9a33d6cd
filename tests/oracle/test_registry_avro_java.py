"""Apache Avro is the judge of our compatibility and of our schema texts: pairs drawn at random."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from oracle.avro_schemas import SchemaMaker
from oracle.kafka_tools import needs_java
from ottla.registry import avro
from ottla.registry.compat.avro import AmbiguousField, compare
from ottla.registry.errors import InvalidSchema
from ottla.testing.apache import LEAN_JVM_FLAGS
from ottla.testing.maven import classpath

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

_PROGRAM = Path(__file__).parent / "java" / "AvroOracle.java"
# `make test-avro-pairs` draws more.
_PAIRS = int(os.environ.get("OTTLA_AVRO_PAIRS", "3000"))
_SEEDS = range(int(os.environ.get("OTTLA_AVRO_SEEDS", "1")))


def ask(questions: list[str]) -> list[str]:
    done = subprocess.run(
        ["java", *LEAN_JVM_FLAGS, "-cp", classpath("org.apache.avro:avro:1.12.0"), str(_PROGRAM)],
        input="\n".join(questions) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def ours(reader: str, writer: str) -> str:
    try:
        first, second = avro.parse(reader), avro.parse(writer)
    except InvalidSchema as error:
        return f"INVALID {error}"
    try:
        return "INCOMPATIBLE" if compare(first.root, second.root) else "COMPATIBLE"
    except AmbiguousField:
        return "AMBIGUOUS"


def text_of(schema: str) -> str:
    try:
        return avro.parse(schema).text
    except InvalidSchema as error:
        return f"INVALID {error}"


@pytest.mark.parametrize("seed", _SEEDS)
def test_verdicts_are_those_of_apache_avro(seed):
    maker = SchemaMaker(random.Random(20261117 + seed))
    pairs = []
    while len(pairs) < _PAIRS:
        writer = maker.schema()
        reader = maker.changed(writer) if maker.random.random() < 0.8 else maker.schema()
        pairs.append((json.dumps(reader), json.dumps(writer)))
    answers = ask([f"compare\t{reader}\t{writer}" for reader, writer in pairs])
    assert len(answers) == len(pairs)
    different = []
    for (reader, writer), answer in zip(pairs, answers, strict=True):
        mine = ours(reader, writer)
        if mine.split()[0] != answer.split()[0]:
            different.append((reader, writer, answer, mine))
    assert different == [], f"{len(different)} differ, the first: {different[0]}"
    verdicts = [answer.split()[0] for answer in answers]
    assert min(verdicts.count("COMPATIBLE"), verdicts.count("INCOMPATIBLE")) > _PAIRS // 5


@pytest.mark.parametrize("seed", _SEEDS)
def test_texts_are_those_of_apache_avro(seed):
    maker = SchemaMaker(random.Random(7 + seed))
    schemas = [json.dumps(maker.schema()) for _ in range(_PAIRS // 3)]
    schemas += [
        '{"type":"record","name":"R","doc":"d","x":1,"aliases":["Q"],"fields":'
        '[{"default":1,"type":{"type":"int","logicalType":"date"},"name":"f","order":"descending","p":[1]}]}',
        '{"type":"record","name":"a.R","fields":[{"name":"e","type":{"type":"enum","name":"E","symbols":["A"]}},'
        '{"name":"e2","type":"E"},{"name":"e3","type":{"type":"array","items":"a.E"}}]}',
        '"string"',
        '{"type":"string"}',
        '{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}',
    ]
    for schema, answer in zip(schemas, ask([f"text\t{one}" for one in schemas]), strict=True):
        mine = text_of(schema)
        assert mine == answer or (mine[:7] == answer[:7] == "INVALID"), schema
