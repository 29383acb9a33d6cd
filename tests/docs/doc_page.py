"""Runs a page as a reader would: its files are saved, its commands typed, its Python run, its output compared.

Commands run in a directory of the page's own that looks like a clone. `localhost:9092` to `localhost:9094` are free
ports of this machine; a command `ottla` in front of the real one gives it the address that it has by default.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from docs.doc_blocks import ROOT, Block
from ottla.testing.apache import ApacheKafka
from ottla.testing.process import BrokerProcess

PORTS = (9092, 9093, 9094)
_BLOCK_S = 400
_READY_S = 60
_STOP_S = 30
_POLL_S = 0.05

_VARYING = (
    re.compile(r"(?<![\w-])[A-Za-z0-9_-]{22}(?![\w-])"),
    re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?"),
    re.compile(r"\d+\.\d+ ?m?s\b"),
)
"""Ids, times of day and durations: they differ from run to run."""

_WRAPPER = """#!/bin/sh
# The real command, with this page's address in the place of its default.
case "$*" in
  *--listen*|*--config*|*--help*) ;;
  start*) exec {python} -m ottla "$@" --listen localhost:{port} ;;
esac
exec {python} -m ottla "$@"
"""


def consecutive_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    for first in range(21_092 + os.getpid() % 8_000, 48_000, 7):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("there are no free ports in a row")


def _shown_lines(printed: Path) -> list[str]:
    """The whole lines of an output, without those that tell of a busy machine."""
    lines = printed.read_text().splitlines(keepends=True)
    return [line for line in lines if line.endswith("\n") and "ottla.net.watchdog" not in line]


class PageRun:
    """One page, from its first block to its last."""

    def __init__(self, directory: Path, postgres_port: int | None = None) -> None:
        self._directory = directory
        self._postgres_port = postgres_port
        self._work = directory / "work"
        self._work.mkdir()
        # A local cluster takes twice as many ports as it has nodes.
        self._port = consecutive_ports(8)
        self._background: list[subprocess.Popen[bytes]] = []
        self._worker: subprocess.Popen[str] | None = None
        self._broker: BrokerProcess | None = None
        self._kafka: ApacheKafka | None = None
        for name in ("examples", "bin", "src"):
            (self._work / name).symlink_to(ROOT / name)
        commands = directory / "commands"
        commands.mkdir()
        wrapper = commands / "ottla"
        wrapper.write_text(_WRAPPER.format(python=shlex.quote(sys.executable), port=self._port))
        wrapper.chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OTTLA_BOOTSTRAP": f"localhost:{self._port}",
            "OTTLA_STREAMS_DIR": str(directory / "streams"),
            # A JVM lives for seconds here: most of its time would go into a second compiler.
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "XDG_CONFIG_HOME": str(directory / "config"),
            "PYTEST_ADDOPTS": "-p no:cacheprovider",
        }
        for name in ("PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST"):
            self._environment.pop(name, None)

    def __enter__(self) -> PageRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._worker is not None:
            self._worker.communicate(timeout=_STOP_S)
        for process in self._background:
            _stop(process)
        if self._broker is not None:
            self._broker.kill()
        if self._kafka is not None:
            self._kafka.kill()
        for pid in _processes_in(self._work):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start_broker(self) -> None:
        """A broker where the page expects one."""
        data = self._directory / "broker"
        self._broker = BrokerProcess(data, listen=f"localhost:{self._port}").start()

    def start_kafka(self) -> None:
        """A node of Apache Kafka where the page expects one."""
        self._kafka = ApacheKafka(self._directory / "kafka")
        self._kafka.port = self._port
        _, controller = str(self._kafka.settings["listeners"]).split(",")
        self._kafka.settings["listeners"] = f"PLAINTEXT://localhost:{self._port},{controller}"
        self._kafka.format()
        self._kafka.start()

    def run(self, block: Block) -> None:
        """Run one block, and compare what it prints with what the page shows."""
        if block.title is not None:
            target = self._work / block.title
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(self._here(block.text))
        elif block.language == "python":
            self._compare(block, self._run_python(block))
        elif block.how == "background":
            self._start(block)
        else:
            self._compare(block, self._run_shell(block))

    def _run_shell(self, block: Block) -> str:
        state = self._directory / "state.sh"
        load = f"[ ! -f {state} ] || . {state}\n"
        script = f"{load}set -eo pipefail\n{self._here(block.text)}\nexport -p > {state}\n"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._work,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_BLOCK_S,
            text=True,
        )
        expected_to_fail = block.how == "fails"
        assert (done.returncode != 0) == expected_to_fail, f"{block.where}\n{done.stdout}"
        return done.stdout

    def _run_python(self, block: Block) -> str:
        if self._worker is None:
            worker = Path(__file__).with_name("doc_worker.py")
            self._worker = subprocess.Popen(
                [sys.executable, str(worker)],
                cwd=self._work,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._worker.stdin is not None and self._worker.stdout is not None
        code = self._here(block.text)
        self._worker.stdin.write(json.dumps({"code": code, "where": block.where}) + "\n")
        self._worker.stdin.flush()
        answer: dict[str, Any] = json.loads(
            self._worker.stdout.readline() or '{"error": "the process ended"}'
        )
        assert not answer["error"], f"{block.where}\n{answer['error']}"
        return str(answer["printed"])

    def _start(self, block: Block) -> None:
        """Leave the command running; it is ready when it has printed what the page shows of it."""
        printed = self._directory / f"background-{block.line}.txt"
        with printed.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self._here(block.text).strip()}"],
                cwd=self._work,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._background.append(process)
        lines = (block.output or "").count("\n") or 1
        deadline = time.monotonic() + _READY_S
        # The process reports its state only in a file: there is no event to wait for.
        while len(_shown_lines(printed)) < lines and process.poll() is None:
            assert time.monotonic() < deadline, f"{block.where}: it is not ready\n{printed.read_text()}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_S)
        assert process.poll() is None, f"{block.where}: it ended\n{printed.read_text()}"
        self._compare(block, "".join(_shown_lines(printed)[:lines]))

    def _compare(self, block: Block, printed: str) -> None:
        if block.output is None:
            return
        shown = self._there(printed)
        if not matches(block.output, shown):
            raise AssertionError(f"{block.where} shows\n{block.output}\nand this was printed\n{shown}")

    def _here(self, text: str) -> str:
        """The page's text with the ports of this run."""
        for offset, port in enumerate(PORTS):
            text = re.sub(rf"(?<=localhost:){port}\b", str(self._port + offset), text)
        if self._postgres_port is not None:
            text = re.sub(r"(?<=port=)5432\b", str(self._postgres_port), text, flags=re.IGNORECASE)
        return text

    def _there(self, text: str) -> str:
        """What was printed, with the ports and the directory of the page."""
        for offset, port in enumerate(PORTS):
            text = re.sub(rf"\b{self._port + offset}\b", str(port), text)
        return text.replace(str(self._work), ".").replace("127.0.0.1", "localhost")


def matches(expected: str, printed: str) -> bool:
    """Whether texts are equal, but for ids, times and what `...` stands for; as the last line it may be nothing."""
    pattern = ".*?".join(re.escape(piece) for piece in _settled(expected).split("..."))
    if pattern.endswith(end := re.escape("\n") + ".*?"):
        pattern = pattern.removesuffix(end) + r"(?:\n.*)?"
    return re.fullmatch(pattern, _settled(printed), re.DOTALL) is not None


def _settled(text: str) -> str:
    for varying in _VARYING:
        text = varying.sub("VARYING", text)
    return "\n".join(re.sub(r"\s+", " ", line).strip() for line in text.strip().splitlines())


def _processes_in(directory: Path) -> list[int]:
    """Processes that still work in this directory: daemons that a page has started and not stopped."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(link)) == directory:
                found.append(int(link.parent.name))
    return found


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
