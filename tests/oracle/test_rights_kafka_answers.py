"""Every API with no right, with each right alone, with all of them and with a DENY: Kafka's answers, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from oracle.kafka_tools import needs_java
from oracle.rights_dialogue import Case, System, all_cases, start_apache, start_ottla

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

CASES = all_cases()


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[System, System]]:
    folder = tmp_path_factory.mktemp("rights")
    apache = start_apache(folder / "apache", CASES)
    try:
        ottla = start_ottla(folder / "ottla", CASES)
        try:
            for system in (apache, ottla):
                system.prepare(CASES)
            yield apache, ottla
        finally:
            ottla.stop()
    finally:
        apache.stop()


def differences(kafka: Any, ours: Any, path: str = "") -> list[str]:
    """Where two answers differ."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        return [line for key in kafka for line in differences(kafka[key], ours.get(key), f"{path}.{key}")]
    if isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        pairs = zip(kafka, ours, strict=True)
        return [line for at, pair in enumerate(pairs) for line in differences(*pair, f"{path}[{at}]")]
    return [] if kafka == ours else [f"{path}: Kafka {kafka!r}, Ottla {ours!r}"]


@pytest.mark.parametrize(
    "label", dict.fromkeys(case.label + ("@" if case.on_controller else "") for case in CASES)
)
def test_answers_are_kafkas(systems: tuple[System, System], label: str) -> None:
    apache, ottla = systems
    found: list[str] = []
    for case in CASES:
        if case.label + ("@" if case.on_controller else "") == label:
            found += report(case, apache, ottla)
    assert not found, "\n".join(found)


def report(case: Case, apache: System, ottla: System) -> list[str]:
    lines = differences(apache.answer(case), ottla.answer(case))
    if case.label == "alter share offsets":
        # Kafka tells the id of a topic that the client may not know of; Ottla does not.
        lines = [line for line in lines if ".topic_id: " not in line or f"Ottla {bytes(16)!r}" not in line]
    if case.label == "share fetch":
        # Kafka answers with nothing if the state of the queue takes longer to read than the request waits.
        lines = [line for line in lines if not line.startswith(".responses: Kafka []")]
    if case.label == "describe log dirs":
        # Both are on one disk, whose free space changes between the two answers.
        lines = [line for line in lines if ".usable_bytes: " not in line]
    return [f"{case}:", *(f"    {line}" for line in lines)] if lines else []
