"""Ottla Mirror beside MirrorMaker 2: the same source and target; records a second, the mirror's CPU, and its lag."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench import load
from bench.context import Bench
from bench.load import Load
from bench.sheet import KAFKA, OTTLA
from bench.systems import Ottla, cpu_seconds, rss_mb, stop_cleanly
from ottla.admin.cluster import Cluster
from ottla.client.cluster_settings import writer_settings
from ottla.pipeline.fetching import LATEST, READ_UNCOMMITTED, list_offsets
from ottla.pipeline.writer import Place
from ottla.testing.apache import KAFKA_JVM_FLAGS, VERSION
from ottla.testing.maven import classpath
from ottla.testing.process import end_process

_PARTITIONS = 4
_LIMIT_S = 300.0
_LOOK_S = 0.01
_RATE = 20_000
_LINGER_MS = 2


def mirror(bench: Bench) -> None:
    """One source and one target, both Ottla, for both mirrors: the difference is the mirror's alone."""
    source, target = (Ottla(bench.directory / "mirror" / name) for name in ("source", "target"))
    for broker in (source, target):
        broker.start()
    try:
        for size, codec in ((100, "none"), (1000, "lz4")):
            for turn in range(bench.scale.few_rounds):
                tools = (OTTLA, KAFKA) if turn % 2 == 0 else (KAFKA, OTTLA)
                for tool in tools:
                    if any(system.name == tool for system in bench.systems):
                        _measure(bench, tool, source, target, size, codec)
        for tool in (OTTLA, KAFKA):
            if any(system.name == tool for system in bench.systems):
                _measure_lag(bench, tool, source, target)
        stop_cleanly((source, target))
    finally:
        for broker in (source, target):
            broker.kill()


def _measure(bench: Bench, tool: str, source: Ottla, target: Ottla, size: int, codec: str) -> None:
    row = f"mirror {size} B {codec}"
    records = bench.scale.records(size)
    topic = bench.topic(source, row, _PARTITIONS)
    load.run("produce", Load(source.bootstrap, topic, records, size, codec=codec))
    alias = f"{tool.split()[0].lower()}{topic}"
    with _running(bench.directory / "mirror", tool, alias, source, target, topic) as process:
        first_s, last_s, cpu_s = _follow(process, target, f"{alias}.{topic}", records)
        bench.sheet.add(tool, row, "copied", "records/s", records / (last_s - first_s), higher=True)
        bench.sheet.add(tool, row, "mirror CPU", "s/GB", cpu_s / (records * size / 1e9))
        bench.sheet.add(tool, row, "mirror memory", "MB", rss_mb(process.pid))
    load.delete_topic(source.bootstrap, topic)
    load.delete_topic(target.bootstrap, f"{alias}.{topic}")


def _measure_lag(bench: Bench, tool: str, source: Ottla, target: Ottla) -> None:
    """From the moment a record was due at the source to its arrival at a consumer of the target."""
    row = "mirror lag at 20 k/s"
    topic = bench.topic(source, row, _PARTITIONS)
    alias = f"{tool.split()[0].lower()}{topic}"
    remote = f"{alias}.{topic}"
    with _running(bench.directory / "mirror", tool, alias, source, target, topic) as process:
        # A first record shows that the mirror is at work.
        load.run("produce", Load(source.bootstrap, topic, _PARTITIONS * 10, 100))
        _follow(process, target, remote, _PARTITIONS * 10)
        wanted = Load(
            source.bootstrap, topic, rate=_RATE, seconds=2 * bench.scale.seconds, linger_ms=_LINGER_MS
        )
        before_s = cpu_seconds(process.pid)
        figures = load.run("latency", replace(wanted, read_from=(target.bootstrap, remote)))
        cpu_s = cpu_seconds(process.pid) - before_s
    if figures["rate"] < 0.95 * _RATE:
        bench.sheet.note(f"{row}: beside {tool} the sender held only {figures['rate']:,.0f} records/s")
    for name in ("p50", "p99"):
        bench.sheet.add(tool, row, name, "ms", figures[f"end-to-end {name}"])
    bench.sheet.add(tool, row, "mirror CPU", "% of a core", 100 * cpu_s / (wanted.seconds + 1))
    load.delete_topic(source.bootstrap, topic)
    load.delete_topic(target.bootstrap, remote)


@contextmanager
def _running(
    folder: Path, tool: str, alias: str, source: Ottla, target: Ottla, topic: str
) -> Iterator[subprocess.Popen[bytes]]:
    one = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "status.storage")
    keys = {
        "clusters": f"{alias}, copy",
        f"{alias}.bootstrap.servers": source.bootstrap,
        "copy.bootstrap.servers": target.bootstrap,
        f"{alias}->copy.enabled": "true",
        "topics": topic,
        "tasks.max": str(_PARTITIONS),
        "replication.factor": "1",
        **{f"{name}.replication.factor": "1" for name in (*one, "config.storage")},
    }
    file = folder / f"{alias}.properties"
    file.write_text("".join(f"{key} = {value}\n" for key, value in keys.items()))
    if tool == OTTLA:
        command = [sys.executable, "-m", "ottla", "mirror", "run", str(file)]
    else:
        jars = classpath(
            *(f"org.apache.kafka:{each}:{VERSION}" for each in ("connect-mirror", "connect-runtime"))
        )
        command = [
            "java",
            *KAFKA_JVM_FLAGS,
            "-cp",
            jars,
            "org.apache.kafka.connect.mirror.MirrorMaker",
            str(file),
        ]
    with (folder / f"{alias}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        end_process(process)


def _follow(
    process: subprocess.Popen[bytes], target: Ottla, remote: str, records: int
) -> tuple[float, float, float]:
    """When the first and the last record arrived, and the mirror's CPU between them."""
    cluster = Cluster(writer_settings(target.bootstrap))
    places = dict.fromkeys((Place(remote, number) for number in range(_PARTITIONS)), LATEST)
    first_s, before_s = 0.0, 0.0
    deadline = time.monotonic() + _LIMIT_S
    made = False
    try:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise RuntimeError("the mirror ended by itself; see its log")
            copied = 0
            made = made or remote in {one.name for one in cluster.metadata(None).topics}
            if made:
                copied = sum(list_offsets(cluster, places, isolation=READ_UNCOMMITTED).values())
            if not copied:
                # The state just before the first record.
                first_s, before_s = time.monotonic(), cpu_seconds(process.pid)
            elif copied >= records:
                return first_s, time.monotonic(), cpu_seconds(process.pid) - before_s
            time.sleep(_LOOK_S)
    finally:
        cluster.close()
    raise TimeoutError(f"{remote} has fewer than {records} records after {_LIMIT_S:.0f} s")
