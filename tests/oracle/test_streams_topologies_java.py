"""Kafka Streams 4.3.1 as the judge: the same topologies, the same records, every answer compared."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from oracle.kafka_tools import needs_java
from oracle.streams_topologies import TOPOLOGIES
from ottla.streams import StreamsBuilder, Topology, TopologyTestDriver
from ottla.testing.apache import LEAN_JVM_FLAGS
from ottla.testing.maven import classpath

pytestmark = [pytest.mark.java, pytest.mark.slow, needs_java]

_PROGRAM = Path(__file__).parent / "java" / "StreamsOracle.java"
_STEPS = 400

NEVER_NULL = {"wordcount": {"a"}, "cogroup": {"b"}}
"""Topics whose values the topology's own functions cannot take as null."""


def dialogue(name: str) -> list[str]:
    """What happens to a topology: records with times that wander, nulls among them, and a clock that moves."""
    rng = random.Random(name)
    topics = Topology.source_topics(built(name))
    now = 0
    lines = []
    for _ in range(_STEPS):
        now += rng.choice([0, 0, 1, 2, 5, 9])
        if rng.random() < 0.03:
            now += 40
        if name == "processor" and rng.random() < 0.05:
            lines.append("time 700")
            continue
        topic = rng.choice(topics)
        key = "-" if rng.random() < 0.04 else rng.choice("xyw")
        value = rng.choice("abcmnz")
        if rng.random() < 0.12 and topic not in NEVER_NULL.get(name, ()):
            value = "-"
        late = rng.choice([0, 0, 0, 3, 12, 30]) if rng.random() < 0.4 else 0
        lines.append(f"in {topic} {key} {value} {max(0, now - late)}")
    return lines


def built(name: str) -> Topology:
    builder = StreamsBuilder()
    TOPOLOGIES[name][1](builder)
    return builder.build()


def hexed(data: bytes | None) -> str:
    return "-" if data is None else data.hex() + "."


def our_answers(name: str, lines: list[str]) -> list[str]:
    outputs = TOPOLOGIES[name][0]
    answers = []
    with TopologyTestDriver(built(name)) as driver:
        for line in lines:
            what, *words = line.split(" ")
            if what == "time":
                driver.advance_time(int(words[0]))
            else:
                topic, key, value, time = words
                given = [None if word == "-" else word for word in (value, key)]
                driver.pipe_input(topic, *given, timestamp=int(time))
            said = ["said"]
            for output in outputs:
                said += [
                    f"{output},{hexed(record.key)},{hexed(record.value)},{record.timestamp}"
                    for record in driver.read_all(output, key_serde=bytes, value_serde=bytes)
                ]
            answers.append(" ".join(said))
    return answers


@pytest.fixture(scope="module")
def judged() -> dict[str, tuple[str, list[str]]]:
    """For each topology Kafka's description of it and its answers."""
    script = []
    for name, (outputs, _) in TOPOLOGIES.items():
        script.append(f"topology {name} {' '.join(outputs)}")
        script += dialogue(name)
    done = subprocess.run(
        [
            "java",
            *LEAN_JVM_FLAGS,
            "-cp",
            classpath("org.apache.kafka:kafka-streams-test-utils:4.3.1"),
            str(_PROGRAM),
        ],
        input="\n".join(script) + "\n",
        capture_output=True,
        encoding="utf-8",
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, tuple[str, list[str]]] = {}
    said = iter(line for line in done.stdout.splitlines() if line.startswith(("described", "said")))
    for name in TOPOLOGIES:
        described = bytes.fromhex(next(said).split(" ")[1]).decode()
        assert next(said) == "said"
        found[name] = (described, [next(said) for _ in dialogue(name)])
    return found


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_topology_is_described_as_kafka_streams_describes_it(
    name: str, judged: dict[str, tuple[str, list[str]]]
) -> None:
    assert built(name).describe() == judged[name][0]


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_records_have_the_effect_they_have_in_kafka_streams(
    name: str, judged: dict[str, tuple[str, list[str]]]
) -> None:
    lines = dialogue(name)
    for number, (line, theirs, ours) in enumerate(
        zip(lines, judged[name][1], our_answers(name, lines), strict=True)
    ):
        assert ours == theirs, f"step {number}: {line}"
