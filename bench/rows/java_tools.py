"""Kafka's own performance tools. They print their figures themselves: the start of their JVM does not count."""

from __future__ import annotations

import re
import subprocess

from bench import load
from bench.context import Bench
from bench.machine import ready_memory
from bench.rows.coordination import serves
from bench.systems import System
from ottla.testing.apache import java_command
from ottla.wire.apis import ApiKey

_TOOLS = "org.apache.kafka.tools"
_JVM_FLAGS = ["-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
"""What the tools' own scripts give them."""

_SENT = re.compile(r"([\d.]+) records/sec \([\d.]+ MB/sec\).*?([\d.]+|NaN) ms avg latency")
_TAIL = re.compile(r"([\d.]+) ms 50th, [\d.]+ ms 95th, ([\d.]+) ms 99th")
_MEAN = re.compile(r"Avg latency: ([\d.]+) ms")
_PERCENTILES = re.compile(r"50th = ([\d.]+), 99th = ([\d.]+), 99.9th = ([\d.]+)")


def java_tools(bench: Bench) -> None:
    for size in (100, 1000):
        for acks in ("1", "all"):
            for system in bench.turns(bench.scale.few_rounds):
                _produce_and_read(bench, system, size, acks)
    for system in bench.turns(bench.scale.few_rounds):
        _end_to_end(bench, system)


def _tool(name: str, *arguments: object) -> str:
    done = subprocess.run(
        java_command(f"{_TOOLS}.{name}", *arguments, flags=_JVM_FLAGS),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=load.RUN_TIMEOUT_S,
        check=True,
    )
    return done.stdout


def _produce_and_read(bench: Bench, system: System, size: int, acks: str) -> None:
    row = f"Java tools, {size} B acks={acks}"
    records = bench.scale.records(size)
    warm = records // 2
    topic = bench.topic(system, row, 4)
    ready_memory(bench.directory, (records + warm) * size)
    printed = _tool(
        "ProducerPerformance",
        *("--bootstrap-server", system.bootstrap, "--topic", topic, "--throughput", -1),
        *("--num-records", records + warm, "--warmup-records", warm, "--record-size", size),
        *("--command-property", f"acks={acks}", "linger.ms=5", "batch.size=131072", "buffer.memory=67108864"),
    )
    steady = printed.strip().splitlines()[-1]
    sent, tail = _SENT.search(steady), _TAIL.search(steady)
    assert sent and tail, printed
    bench.sheet.add(system.name, row, "ProducerPerformance", "records/s", float(sent[1]), higher=True)
    bench.sheet.add(system.name, row, "ProducerPerformance p99", "ms", float(tail[2]))
    if acks == "1":
        if serves(system, ApiKey.JOIN_GROUP):
            _read(bench, system, row, topic, records + warm)
        else:
            bench.sheet.note(f"ConsumerPerformance needs groups, which {system.name} does not serve yet")
    load.delete_topic(system.bootstrap, topic)


def _read(bench: Bench, system: System, row: str, topic: str, records: int) -> None:
    printed = _tool(
        "ConsumerPerformance",
        *("--bootstrap-server", system.bootstrap, "--topic", topic, "--num-records", records),
        *("--hide-header", "--timeout", 60_000),
    )
    fields = printed.strip().splitlines()[-1].split(",")
    # The last field is records a second of fetching, without the time in which the group came together.
    bench.sheet.add(system.name, row, "ConsumerPerformance", "records/s", float(fields[-1]), higher=True)


def _end_to_end(bench: Bench, system: System) -> None:
    row = "Java tools, EndToEndLatency"
    topic = bench.topic(system, row, 1)
    printed = _tool("EndToEndLatency", system.bootstrap, topic, 1000 * bench.scale.seconds, "all", 100)
    mean, tail = _MEAN.search(printed), _PERCENTILES.search(printed)
    assert mean and tail, printed
    # The tool rounds its percentiles to whole milliseconds: a p50 of 0 would say nothing.
    bench.sheet.add(system.name, row, "mean", "ms", float(mean[1]))
    for name, value in zip(("p99", "p999"), tail.groups()[1:], strict=True):
        bench.sheet.add(system.name, row, name, "ms", float(value))
    load.delete_topic(system.bootstrap, topic)
