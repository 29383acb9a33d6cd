"""The audit file: whole lines in order, a bound on floods, nothing lost without a word."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.security.audit import MAX_DENIALS_PER_SECOND, MAX_WAITING_LINES, AuditFile
from ottla.server.security import open_audit
from ottla.testing.virtual_clock import VirtualClock


class Later:
    """An executor whose work a test runs."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None]) -> None:
        self.work.append(work)

    def run(self) -> None:
        while self.work:
            self.work.pop(0)()


class Scene:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock, self.threads = VirtualClock(), Later()
        self.file = AuditFile(str(path), self.clock, cast(Executor, self.threads))

    def lines(self) -> list[dict[str, Any]]:
        self.threads.run()
        return [json.loads(line) for line in self.path.read_text().splitlines()]


def test_events_are_json_lines_that_only_the_owner_reads(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "audit.log")
    scene.file.event("authenticated", {"principal": "User:a\nb", "host": "::1"})
    scene.file.event("denied", {"resource": "x" * 1000})
    first, second = scene.lines()
    assert first["event"] == "authenticated" and first["principal"] == "User:a\nb"
    assert len(second["resource"]) == 256
    assert scene.path.stat().st_mode & 0o777 == 0o600
    scene.file.event("authenticated", {})
    scene.file.close()
    assert len(scene.lines()) == 3


def test_a_flood_of_denials_is_counted(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "audit.log")
    for _ in range(MAX_DENIALS_PER_SECOND + 500):
        scene.file.event("denied", {})
    scene.file.event("authenticated", {})
    scene.clock.advance(1.0)
    scene.file.event("denied", {})
    lines = scene.lines()
    assert len(lines) == MAX_DENIALS_PER_SECOND + 3
    assert [line["event"] for line in lines[-3:]] == ["authenticated", "denials left out", "denied"]
    assert lines[-2]["count"] == 500


def test_a_disk_that_does_not_keep_up_costs_lines_not_memory(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "audit.log")
    for _ in range(MAX_WAITING_LINES + 7):
        scene.file.event("authenticated", {})
    assert len(scene.lines()) == MAX_WAITING_LINES
    scene.file.event("authenticated", {})
    assert scene.lines()[-2] | {"time_ms": 0} == {"time_ms": 0, "event": "lines lost", "count": 7}


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    config = BrokerConfig.single_node(
        {"log.dirs": "data", "ottla.audit.log.file": str(tmp_path / "no" / "audit.log")}
    )
    with pytest.raises(ConfigError, match="No such file"):
        open_audit(config, VirtualClock(), cast(Executor, Later()))
    assert open_audit(BrokerConfig.single_node(), VirtualClock(), cast(Executor, Later())) is None
