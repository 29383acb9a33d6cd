"""The nodes that run on this machine, found by their command lines as Kafka's own scripts do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ottla.cli.properties_file import read_properties
from ottla.cli.settings import parse_assignments
from ottla.config.broker import SINGLE_NODE
from ottla.config.errors import ConfigError

_START_COMMANDS = ("start", "kafka-server-start")


@dataclass(frozen=True, slots=True)
class OttlaProcess:
    """A running node."""

    pid: int
    properties: dict[str, str] = field(default_factory=dict)
    """The settings from its command line and its properties file."""


def running_nodes() -> list[OttlaProcess]:
    """Every node of this user on this machine but the calling process."""
    found: list[OttlaProcess] = []
    for pid, words, directory in _command_lines():
        arguments = node_arguments(words)
        if arguments is not None and pid != os.getpid():
            found.append(OttlaProcess(pid, _properties(arguments, directory)))
    return found


def node_arguments(words: Sequence[str]) -> list[str] | None:
    """The arguments after `ottla start` in a command line; None for any other program."""
    for index, word in enumerate(words[:4]):
        is_module = word == "ottla" and index > 0 and words[index - 1] == "-m"
        if is_module or os.path.basename(word) == "ottla":
            rest = list(words[index + 1 :])
            return rest[1:] if rest and rest[0] in _START_COMMANDS else None
    return None


def _command_lines() -> Iterator[tuple[int, list[str], Path]]:
    """Process id, words and working directory of this user's processes."""
    processes = Path("/proc")
    if not (processes / "self" / "cmdline").exists():
        yield from _command_lines_by_ps()
        return
    for entry in processes.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            if entry.stat().st_uid == os.getuid():
                words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
                yield int(entry.name), words, (entry / "cwd").resolve()
        except OSError:
            # It ended while we looked.
            continue


def _command_lines_by_ps() -> Iterator[tuple[int, list[str], Path]]:
    command = ["ps", "-u", str(os.getuid()), "-o", "pid=,args="]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for line in output.splitlines():
        pid, *words = line.split()
        yield int(pid), words, Path.cwd()


def _properties(arguments: list[str], directory: Path) -> dict[str, str]:
    file: str | None = None
    pairs: list[str] = []
    rest = iter(arguments)
    for word in rest:
        flag, equals, value = word.partition("=")
        if flag in ("--set", "--override"):
            pairs.append(value if equals else next(rest, ""))
        elif flag == "--config":
            file = value if equals else next(rest, None)
        elif not word.startswith("-") and file is None and word.endswith(".properties"):
            file = word
    try:
        own = read_properties(str(directory / file)) if file is not None else {}
        return {**SINGLE_NODE, **own, **parse_assignments(pairs, "--set")}
    except ConfigError:
        # Its file is gone or was changed since; it is a node all the same.
        return {}
