"""Kafka's command line tools and ours, side by side: the Java ones share a JVM, ours run as a user runs them."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from ottla.testing.apache import LEAN_JVM_FLAGS, kafka_classpath

_PROGRAM = Path(__file__).parent / "java" / "ToolsOracle.java"
_TOOLS = "org.apache.kafka.tools"

JAVA_CLASSES = {
    "topics": f"{_TOOLS}.TopicCommand",
    "produce": f"{_TOOLS}.ConsoleProducer",
    "consume": f"{_TOOLS}.consumer.ConsoleConsumer",
    "consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "configs": "kafka.admin.ConfigCommand",
    "get-offsets": f"{_TOOLS}.GetOffsetShell",
    "delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "log-dirs": f"{_TOOLS}.LogDirsCommand",
    "broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "cluster": f"{_TOOLS}.ClusterTool",
    "features": f"{_TOOLS}.FeatureCommand",
    "metadata-quorum": f"{_TOOLS}.MetadataQuorumCommand",
    "transactions": f"{_TOOLS}.TransactionsCommand",
    "groups": f"{_TOOLS}.GroupsCommand",
    "dump-log": f"{_TOOLS}.DumpLogSegments",
    "share-groups": f"{_TOOLS}.consumer.group.ShareGroupCommand",
    "streams-groups": f"{_TOOLS}.streams.StreamsGroupCommand",
    "streams-application-reset": f"{_TOOLS}.StreamsResetter",
    "reassign-partitions": f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    "leader-election": f"{_TOOLS}.LeaderElectionCommand",
    "acls": f"{_TOOLS}.AclCommand",
    "delegation-tokens": f"{_TOOLS}.DelegationTokenCommand",
    "client-metrics": f"{_TOOLS}.ClientMetricsCommand",
    "share-consumer-perf-test": f"{_TOOLS}.ShareConsumerPerformance",
    "console-share-consumer": f"{_TOOLS}.consumer.ConsoleShareConsumer",
    "producer-perf-test": f"{_TOOLS}.ProducerPerformance",
    "consumer-perf-test": f"{_TOOLS}.ConsumerPerformance",
    "e2e-latency": f"{_TOOLS}.EndToEndLatency",
    "verifiable-producer": f"{_TOOLS}.VerifiableProducer",
    "verifiable-consumer": f"{_TOOLS}.VerifiableConsumer",
    "storage": "kafka.tools.StorageTool",
    "metadata-shell": "org.apache.kafka.shell.MetadataShell",
}


PATIENCE_S = 60.0

_SHOWS = re.compile(r"\s(--describe|--list|describe|list|--dry-run)\b")


def only_shows(line: str) -> bool:
    """Whether a line may be run again while two runs of it differ.

    A broker hears of a change a moment after others, and the two tools need not ask the same one.
    """
    return _SHOWS.search(line) is not None and not line.startswith(("!", "?"))


class Said(NamedTuple):
    """How a run ended and what it printed."""

    code: int
    out: str
    err: str


class JavaTools:
    """Kafka's tools in one JVM, which they share to save its start."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["java", *LEAN_JVM_FLAGS, "-cp", kafka_classpath(), str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, tool: str, *arguments: object, stdin: str = "") -> Said:
        """Run a tool, named as in `JAVA_CLASSES` or by its class."""
        assert self._process.stdin is not None and self._process.stdout is not None
        words = [JAVA_CLASSES.get(tool, tool), _encode(stdin), *(_encode(str(each)) for each in arguments)]
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        # Text that a tool writes past System.out would stand before the answer.
        code, out, err = self._process.stdout.readline().rstrip("\n").split(" ")
        return Said(int(code), base64.b64decode(out).decode(), base64.b64decode(err).decode())

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(60)


def _encode(text: str) -> str:
    return "=" + base64.b64encode(text.encode()).decode()


def run_ottla(tool: str, *arguments: object, stdin: str = "") -> Said:
    """One of our tools, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", tool, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=180,
    )
    return Said(done.returncode, done.stdout, done.stderr)
