"""Asks Kafka's own message classes what they make of bytes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ottla.testing.apache import LEAN_JVM_FLAGS, kafka_classpath
from ottla.wire.classes import WireMessage

_PROGRAM = Path(__file__).parent / "java" / "WireOracle.java"
_PACKAGES = {
    "kafka-clients": "org.apache.kafka.common.message",
    "kafka-metadata": "org.apache.kafka.common.metadata",
    "kafka-raft": "org.apache.kafka.raft.generated",
    "kafka-group-coordinator": "org.apache.kafka.coordinator.group.generated",
    "kafka-share-coordinator": "org.apache.kafka.coordinator.share.generated",
    "kafka-storage": "org.apache.kafka.server.log.remote.metadata.storage.generated",
    "kafka-transaction-coordinator": "org.apache.kafka.coordinator.transaction.generated",
}


class Question(NamedTuple):
    """Read these bytes (nothing: take a new message) in one version, write them in another."""

    cls: type[WireMessage]
    read_version: int
    write_version: int
    data: bytes | None


class Answer(NamedTuple):
    """The bytes written and the message as JSON; or why it was refused."""

    data: bytes
    json: dict[str, Any]
    refused: str


def java_class_name(cls: type[WireMessage]) -> str:
    """The class that Kafka generates for a message."""
    suffix = "Data" if cls.MESSAGE.kind in ("request", "response", "header") else ""
    return f"{_PACKAGES[cls.MESSAGE.module]}.{cls.NAME}{suffix}"


def ask(questions: Iterable[Question]) -> list[Answer]:
    """One run of the Java program for all of the questions."""
    lines = [
        f"{java_class_name(one.cls)} {one.read_version} {one.write_version} "
        f"{'-' if one.data is None else one.data.hex()}"
        for one in questions
    ]
    done = subprocess.run(
        ["java", *LEAN_JVM_FLAGS, "-cp", kafka_classpath(), str(_PROGRAM)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        encoding="utf-8",
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == len(lines), done.stderr
    return [_answer(line) for line in said]


def _answer(line: str) -> Answer:
    if line.startswith("!"):
        return Answer(b"", {}, line[1:])
    data, _, reported = line.partition(" ")
    return Answer(bytes.fromhex(data), json.loads(reported), "")
