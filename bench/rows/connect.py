"""Ottla Connect beside Kafka Connect, on the same Ottla broker: start, memory, FileStream both ways, idle connectors.

Both have exactly-once sources, and Kafka's own tuning of JVMs. The files of Parquet and the JSON converter are Ottla's
alone: Kafka Connect has no connector for files but FileStream.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import load
from bench.context import Bench
from bench.load import Load
from bench.sheet import KAFKA, OTTLA
from bench.systems import Ottla, cpu_seconds, rss_mb
from ottla.admin.cluster import Cluster
from ottla.admin.groups import committed_offsets
from ottla.client.cluster_settings import writer_settings
from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.data import schema as schemas
from ottla.connect.data.record import SourceRecord
from ottla.connect.data.schema import Struct
from ottla.connect.run.chain import Chain, ChainSpec
from ottla.pipeline.fetching import LATEST, READ_UNCOMMITTED, list_offsets
from ottla.pipeline.writer import Place
from ottla.testing.apache import KAFKA_JVM_FLAGS, VERSION
from ottla.testing.maven import classpath
from ottla.testing.ports import free_ports

_LINE = 100
_LOOK_S = 0.02
_LIMIT_S = 240.0
_SETTLED_S = 1.0
_IDLE = 100
_STRING = "org.apache.kafka.connect.storage.StringConverter"
_JSON = "org.apache.kafka.connect.json.JsonConverter"


def connect(bench: Bench) -> None:
    """Workers in turns; the other one does not run meanwhile."""
    folder = bench.directory / "connect"
    folder.mkdir(parents=True, exist_ok=True)
    broker = Ottla(folder / "broker")
    broker.start()
    lines = folder / "lines.txt"
    records = bench.scale.records(_LINE)
    lines.write_bytes(b"".join(b"%0*d\n" % (_LINE - 1, number) for number in range(records)))
    tools = [name for name in (OTTLA, KAFKA) if any(system.name == name for system in bench.systems)]
    try:
        for turn in range(bench.scale.few_rounds):
            for tool in tools if turn % 2 == 0 else reversed(tools):
                with _worker(bench, folder, tool, broker) as worker:
                    _source(bench, worker, broker, lines, records)
                    _sink(bench, worker, broker, records)
                    if turn == 0:
                        _idle(bench, worker, folder)
                    if tool == OTTLA:
                        _parquet(bench, worker, broker, records)
    finally:
        broker.kill()
    if OTTLA in tools:
        _converter(bench)


class _Worker:
    """A worker process and its REST address."""

    def __init__(self, tool: str, process: subprocess.Popen[bytes], url: str, folder: Path) -> None:
        self.tool, self.process, self.url, self.folder = tool, process, url, folder

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        deadline = time.monotonic() + _LIMIT_S
        while True:
            try:
                with urllib.request.urlopen(request, timeout=90) as answer:
                    text = answer.read()
                return json.loads(text) if text else None
            except urllib.error.HTTPError as error:
                # A rebalance: Kafka's workers ask to try again.
                if error.code != 409 or time.monotonic() > deadline:
                    raise
            time.sleep(_LOOK_S)

    @contextmanager
    def connector(self, name: str, **keys: str) -> Iterator[None]:
        config = {key.replace("_", "."): value for key, value in keys.items()}
        self.call("POST", "/connectors", {"name": name, "config": config})
        try:
            yield
        finally:
            self.call("DELETE", f"/connectors/{name}")


@contextmanager
def _worker(bench: Bench, folder: Path, tool: str, broker: Ottla) -> Iterator[_Worker]:
    """Starts a distributed worker, and measures how long it takes and what it needs before its first connector."""
    name = bench.name(f"connect {tool}")
    (port,) = free_ports(1)
    keys = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": name,
        "listeners": f"http://127.0.0.1:{port}",
        "rest.advertised.host.name": "127.0.0.1",
        "plugin.discovery": "service_load",
        "key.converter": _STRING,
        "value.converter": _STRING,
        "exactly.once.source.support": "enabled",
        "offset.storage.partitions": "5",
    }
    for kind in ("config", "offset", "status"):
        keys |= {f"{kind}.storage.topic": f"{name}-{kind}", f"{kind}.storage.replication.factor": "1"}
    file = folder / f"{name}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    command = [sys.executable, "-m", "ottla", "connect", "run", str(file)]
    if tool == KAFKA:
        parts = ("connect-runtime", "connect-file", "connect-json")
        path = classpath(*(f"org.apache.kafka:{one}:{VERSION}" for one in parts))
        command = ["java", *KAFKA_JVM_FLAGS, "-cp", path, "org.apache.kafka.connect.cli.ConnectDistributed"]
        command.append(str(file))
    with (folder / f"{name}.log").open("wb") as log:
        began_s = time.monotonic()
        process = subprocess.Popen(command, stdout=log, stderr=log)
    worker = _Worker(tool, process, f"http://127.0.0.1:{port}", folder)
    try:
        _until(process, lambda: _healthy(worker))
        bench.sheet.add(tool, "connect worker", "start to /health", "s", time.monotonic() - began_s)
        bench.sheet.add(tool, "connect worker", "CPU of the start", "s", cpu_seconds(process.pid))
        bench.sheet.add(tool, "connect worker", "memory before connectors", "MB", rss_mb(process.pid))
        yield worker
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _healthy(worker: _Worker) -> bool:
    try:
        worker.call("GET", "/health")
    except (OSError, urllib.error.URLError):
        return False
    return True


def _until(process: subprocess.Popen[bytes], done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not done():
        if process.poll() is not None:
            raise RuntimeError("the worker ended by itself; see its log")
        if time.monotonic() > deadline:
            raise TimeoutError(f"the worker was not done within {_LIMIT_S:.0f} s")
        time.sleep(_LOOK_S)


class _Progress:
    """When something began to grow, when it reached its end, and the worker's CPU between."""

    def __init__(self, worker: _Worker, size: Callable[[], int], wanted: int) -> None:
        self._worker, self._size, self._wanted = worker, size, wanted
        self.first_s = self.last_s = time.monotonic()
        self._before_s = cpu_seconds(worker.process.pid)
        self.cpu_s = 0.0

    def follow(self) -> _Progress:
        _until(self._worker.process, self._look)
        return self

    def _look(self) -> bool:
        found = self._size()
        if not found:
            # The state just before the first record.
            self.first_s, self._before_s = time.monotonic(), cpu_seconds(self._worker.process.pid)
        elif found >= self._wanted:
            self.last_s = time.monotonic()
            self.cpu_s = cpu_seconds(self._worker.process.pid) - self._before_s
            return True
        return False

    def add(self, bench: Bench, row: str, records: int) -> None:
        rate = records / (self.last_s - self.first_s)
        bench.sheet.add(self._worker.tool, row, "moved", "records/s", rate, higher=True)
        bench.sheet.add(self._worker.tool, row, "worker CPU", "us/record", self.cpu_s / records * 1e6)


def _source(bench: Bench, worker: _Worker, broker: Ottla, lines: Path, records: int) -> None:
    topic = bench.topic(broker, "connect source", 1)
    cluster = Cluster(writer_settings(broker.bootstrap))
    place = Place(topic, 0)

    def end() -> int:
        return list_offsets(cluster, {place: LATEST}, isolation=READ_UNCOMMITTED)[place]

    try:
        keys = {"file": str(lines), "topic": topic, "tasks_max": "1"}
        with worker.connector(topic, connector_class="FileStreamSource", **keys):
            progress = _Progress(worker, end, records).follow()
    finally:
        cluster.close()
    progress.add(bench, f"FileStream source {_LINE} B", records)
    load.delete_topic(broker.bootstrap, topic)


def _sink(bench: Bench, worker: _Worker, broker: Ottla, records: int) -> None:
    topic = bench.topic(broker, "connect sink", 1)
    load.run("produce", Load(broker.bootstrap, topic, records, _LINE, partitions=1))
    out = worker.folder / f"{topic}.txt"
    with worker.connector(topic, connector_class="FileStreamSink", file=str(out), topics=topic):
        wanted = records * (_LINE + 1)
        progress = _Progress(worker, lambda: out.stat().st_size if out.exists() else 0, wanted).follow()
    progress.add(bench, f"FileStream sink {_LINE} B", records)
    out.unlink()
    load.delete_topic(broker.bootstrap, topic)


def _parquet(bench: Bench, worker: _Worker, broker: Ottla, records: int) -> None:
    """Records with two fields, in one column file per cycle; each once."""
    topic = bench.topic(broker, "connect parquet", 1)
    load.run("produce", Load(broker.bootstrap, topic, records, _LINE, partitions=1))
    folder = worker.folder / topic
    keys = {"store_url": str(folder), "format_class": "parquet", "topics": topic}
    cluster = Cluster(writer_settings(broker.bootstrap))

    def committed() -> int:
        return sum(one.offset for one in committed_offsets(cluster, f"connect-{topic}").values())

    try:
        with worker.connector(topic, connector_class="FilesSink", **keys):
            progress = _Progress(worker, committed, records).follow()
    finally:
        cluster.close()
    progress.add(bench, f"topic to Parquet {_LINE} B", records)
    load.delete_topic(broker.bootstrap, topic)


def _idle(bench: Bench, worker: _Worker, folder: Path) -> None:
    """Connectors that have nothing to do: the worker's CPU, its memory and the answers of REST meanwhile."""
    row, seconds = f"{_IDLE} idle connectors", 3.0 * bench.scale.seconds
    names = [bench.name("idle") for _ in range(_IDLE)]
    for name in names:
        file = folder / f"{name}.txt"
        file.touch()
        config = {"connector.class": "FileStreamSource", "file": str(file), "topic": name, "tasks.max": "1"}
        worker.call("PUT", f"/connectors/{name}/config", config)

    def all_run() -> bool:
        shown = worker.call("GET", "/connectors?expand=status")
        tasks = [task["state"] for one in shown.values() for task in one["status"]["tasks"]]
        return tasks.count("RUNNING") >= _IDLE

    _until(worker.process, all_run)
    time.sleep(_SETTLED_S)
    before_s = cpu_seconds(worker.process.pid)
    time.sleep(seconds)
    used_s = cpu_seconds(worker.process.pid) - before_s
    bench.sheet.add(worker.tool, row, "worker CPU", "% of a core", 100 * used_s / seconds)
    bench.sheet.add(worker.tool, row, "memory", "MB", rss_mb(worker.process.pid))
    took_ms = []
    for number in range(200):
        began_s = time.monotonic()
        worker.call("GET", f"/connectors/{names[number % _IDLE]}/status")
        took_ms.append((time.monotonic() - began_s) * 1000)
    bench.sheet.add(worker.tool, row, "REST p99", "ms", sorted(took_ms)[int(0.99 * len(took_ms))])
    for name in names:
        worker.call("DELETE", f"/connectors/{name}")


def _converter(bench: Bench) -> None:
    """One core: JSON with a schema, and two transforms; then JSON alone, by columns."""
    import pyarrow as pa

    row, count = "JSON converter", 100_000
    schema = schemas.struct([("id", schemas.INT64), ("name", schemas.STRING), ("amount", schemas.FLOAT64)])
    values = [{"id": number, "name": f"name {number}", "amount": number / 8} for number in range(count)]
    package = "org.apache.kafka.connect.transforms"
    config = {
        "transforms": "a,b",
        "transforms.a.type": f"{package}.InsertField$Value",
        "transforms.a.static.field": "origin",
        "transforms.a.static.value": "bench",
        "transforms.b.type": f"{package}.ReplaceField$Value",
        "transforms.b.exclude": "name",
    }
    worker = {"key.converter": _STRING, "value.converter": _JSON}
    records = [SourceRecord("t", Struct(schema, one), schema) for one in values]
    chain = Chain(ChainSpec("bench", config, worker))
    before_s = time.thread_time()
    done = sum(rows.num_rows for rows in chain.to_rows(records))
    rate = done / (time.thread_time() - before_s)
    bench.sheet.add(OTTLA, row, "with two transforms", "records/s", rate, higher=True)
    column = pa.StructArray.from_arrays(
        [pa.array([one[name] for one in values]) for name in ("id", "name", "amount")],
        fields=[
            pa.field("id", pa.int64(), False), pa.field("name", pa.string(), False),
            pa.field("amount", pa.float64(), False),
        ],
    )  # fmt: skip
    converter = JsonConverter({})
    before_s = time.thread_time()
    found = converter.from_column(pa.field("value", column.type, False), column)
    if found is not None:
        rate = count / (time.thread_time() - before_s)
        bench.sheet.add(OTTLA, row, "by columns", "records/s", rate, higher=True)
    bench.sheet.note(f"connect: {os.cpu_count()} cores for the broker and the worker together")
