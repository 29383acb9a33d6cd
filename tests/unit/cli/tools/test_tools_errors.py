"""Errors are for people: one line that says what to try, an exit code that is not 0, and no traceback."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.cli.main import main
from ottla.cli.tools.registry import TOOLS
from ottla.testing.process import BrokerProcess

NOWHERE = "127.0.0.1:1"
NEEDS_NO_BROKER = ("dump-log", "metadata-shell", "doctor", "top")

COMPLETE = {
    "acls": "--list",
    "client-metrics": "--list",
    "cluster": "cluster-id",
    "configs": "--describe --topic t",
    "console-share-consumer": "--topic t",
    "consume": "--topic t",
    "consumer-groups": "--list",
    "consumer-perf-test": "--topic t --num-records 1",
    "delegation-tokens": "--describe",
    "e2e-latency": "--topic t --num-records 1 --producer-acks all --record-size 1",
    "features": "describe",
    "groups": "--list",
    "leader-election": "--election-type preferred --all-topic-partitions",
    "log-dirs": "--describe",
    "metadata-quorum": "describe --status",
    "produce": "--topic t",
    "producer-perf-test": "--topic t --num-records 1 --record-size 1 --throughput -1",
    "reassign-partitions": "--list",
    "share-consumer-perf-test": "--topic t --num-records 1",
    "share-groups": "--list",
    "streams-application-reset": "--application-id a",
    "streams-groups": "--list",
    "topics": "--list",
    "transactions": "list",
    "verifiable-consumer": "--topic t --group-id g",
    "verifiable-producer": "--topic t",
}
"""Lines that need nothing but a broker; a tool that is not here needs no words at all."""


def run(tool: str, *words: str) -> Result:
    return CliRunner().invoke(main, [tool, *words])


def error_line(result: Result) -> str:
    """The one line; everything else would be a failure of ours."""
    assert result.exit_code == 1, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    assert line.startswith("ottla: ") and "Traceback" not in result.output, result.output
    return line


@pytest.mark.parametrize("tool", TOOLS)
def test_a_flag_that_there_is_not(tool: str) -> None:
    line = error_line(run(tool, "--no-such-flag"))
    assert "--no-such-flag" in line and f"{tool} --help`" in line


@pytest.mark.parametrize("tool", [name for name in TOOLS if name not in (*NEEDS_NO_BROKER, "delete-records")])
def test_nobody_at_the_address(tool: str, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("client.id=someone\n")
    words = [*COMPLETE.get(tool, "").split(), "--bootstrap-server", NOWHERE, "--command-config", str(config)]
    line = error_line(run(tool, *words))
    assert line.startswith(f"ottla: no broker answers at {NOWHERE} (") and "--bootstrap-server" in line


@pytest.mark.parametrize(
    "line",
    [
        "topics --describe --topic nothing",
        "topics --delete --topic nothing",
        "topics --alter --topic nothing --partitions 3",
        "configs --alter --topic nothing --add-config retention.ms=5",
        "get-offsets --topic nothing",
        "consume --topic no!thing --from-beginning",
        "leader-election --election-type preferred --topic nothing --partition 0",
        "transactions describe-producers --topic nothing --partition 0",
        "consumer-groups --describe --group nothing",
        "consumer-groups --reset-offsets --group g --topic nothing --to-latest --execute",
        "share-groups --describe --group nothing",
        "transactions describe --transactional-id nothing",
        "consumer-groups --delete-offsets --group nothing --topic nothing",
        "topics --create --topic t --config nonsense=1",
        "topics --create --topic t --replication-factor 9",
    ],
)
def test_what_is_not_there_is_named(broker: BrokerProcess, line: str) -> None:
    tool, *words = line.split()
    assert error_line(run(tool, "--bootstrap-server", broker.bootstrap, *words))


@pytest.mark.parametrize("line", ["topics --list", "consumer-groups --list", "configs --describe --topic t"])
def test_a_stranger_at_the_address_is_no_broker(line: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        tool, *words = line.split()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert "is not a Kafka broker" in error_line(run(tool, "--bootstrap-server", address, *words))
        thread.join()
