"""Ottla Connect beside Kafka Connect, on the same Ottla broker: start, memory, FileStream both ways, idle connectors.

Both have exactly-once sources, and Kafka's own tuning of JVMs; Debezium reads PostgreSQL's changes in Kafka Connect.
The files of Parquet and the JSON converter are Ottla's alone: Kafka Connect has no connector for files but FileStream.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench import load
from bench.context import Bench
from bench.load import Load
from bench.rows.connect_databases import databases
from bench.rows.connect_worker import JSON, STRING, Progress, Worker, running_worker, until
from bench.sheet import KAFKA, OTTLA
from bench.systems import Ottla, cpu_seconds, rss_mb, stop_cleanly
from ottla.admin.cluster import Cluster
from ottla.admin.groups import committed_offsets
from ottla.client.cluster_settings import writer_settings
from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.data import schema as schemas
from ottla.connect.data.columns import Side
from ottla.connect.data.record import SourceRecord
from ottla.connect.data.schema import Struct
from ottla.connect.run.chain import Chain, ChainSpec
from ottla.pipeline.fetching import LATEST, READ_UNCOMMITTED, list_offsets
from ottla.pipeline.writer import Place

_LINE = 100
_SETTLED_S = 1.0
_IDLE = 100
_SHARED = 10


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
                with running_worker(bench, folder, tool, broker) as worker:
                    _source(bench, worker, broker, lines, records)
                    _sink(bench, worker, broker, records)
                    if turn == 0:
                        _idle(bench, worker, folder)
                    if tool == OTTLA:
                        _parquet(bench, worker, broker, records)
        databases(bench, folder, broker, tools, records)
        if OTTLA in tools:
            failover(bench, folder, broker)
        stop_cleanly([broker])
    finally:
        broker.kill()
    if OTTLA in tools:
        _converter(bench)


def _source(bench: Bench, worker: Worker, broker: Ottla, lines: Path, records: int) -> None:
    topic = bench.topic(broker, "connect source", 1)
    cluster = Cluster(writer_settings(broker.bootstrap))
    place = Place(topic, 0)

    def end() -> int:
        return list_offsets(cluster, {place: LATEST}, isolation=READ_UNCOMMITTED)[place]

    try:
        keys = {"file": str(lines), "topic": topic, "tasks_max": "1"}
        with worker.connector(topic, connector_class="FileStreamSource", **keys):
            progress = Progress(worker, end, records).follow()
    finally:
        cluster.close()
    progress.add(bench, f"FileStream source {_LINE} B", records)
    load.delete_topic(broker.bootstrap, topic)


def _sink(bench: Bench, worker: Worker, broker: Ottla, records: int) -> None:
    topic = bench.topic(broker, "connect sink", 1)
    load.run("produce", Load(broker.bootstrap, topic, records, _LINE, partitions=1))
    out = worker.folder / f"{topic}.txt"
    with worker.connector(topic, connector_class="FileStreamSink", file=str(out), topics=topic):
        wanted = records * (_LINE + 1)
        progress = Progress(worker, lambda: out.stat().st_size if out.exists() else 0, wanted).follow()
    progress.add(bench, f"FileStream sink {_LINE} B", records)
    out.unlink()
    load.delete_topic(broker.bootstrap, topic)


def _parquet(bench: Bench, worker: Worker, broker: Ottla, records: int) -> None:
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
            progress = Progress(worker, committed, records).follow()
    finally:
        cluster.close()
    progress.add(bench, f"topic to Parquet {_LINE} B", records)
    load.delete_topic(broker.bootstrap, topic)


def _idle(bench: Bench, worker: Worker, folder: Path) -> None:
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

    until(worker.process, all_run)
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
    worker = {"key.converter": STRING, "value.converter": JSON}
    records = [SourceRecord("t", Struct(schema, one), schema) for one in values]
    chain = Chain(ChainSpec("bench", config, worker))
    before_s = time.thread_time()
    done = sum(rows.num_rows for rows in chain.to_rows(records))
    rate = done / (time.thread_time() - before_s)
    bench.sheet.add(OTTLA, row, "with two transforms", "records/s", rate, higher=True)
    side = Side(schema, tuple(pa.array([one[name] for one in values]) for name in ("id", "name", "amount")))
    converter = JsonConverter({})
    before_s = time.thread_time()
    converter.side_to_bytes("t", side)
    rate = count / (time.thread_time() - before_s)
    bench.sheet.add(OTTLA, row, "by columns", "records/s", rate, higher=True)
    bench.sheet.note(f"connect: {os.cpu_count()} cores for the broker and the worker together")


def failover(bench: Bench, folder: Path, broker: Ottla) -> None:
    """Two workers share file sources; one is killed. Until lines written at that moment are in all of its topics."""
    group = bench.name("failover")
    cluster = Cluster(writer_settings(broker.bootstrap))
    try:
        with (
            running_worker(bench, folder, OTTLA, broker, group) as stays,
            running_worker(bench, folder, OTTLA, broker, group) as leaves,
        ):
            files = {bench.name("failover file"): Path() for _ in range(_SHARED)}
            for name in files:
                files[name] = folder / f"{name}.txt"
                files[name].write_text("first\n")
                config = {"connector.class": "FileStreamSource", "file": str(files[name]), "topic": name}
                stays.call("PUT", f"/connectors/{name}/config", config)
            places = {Place(name, 0): LATEST for name in files}

            def ends() -> dict[Place, int]:
                return list_offsets(cluster, places, isolation=READ_UNCOMMITTED, timeout_s=60.0)

            until(stays.process, lambda: all(one > 0 for one in ends().values()))
            shown = stays.call("GET", "/connectors?expand=status")
            address = leaves.url.removeprefix("http://")
            lost = [name for name in files if shown[name]["status"]["connector"]["worker_id"] == address]
            time.sleep(_SETTLED_S)
            before = ends()
            leaves.process.kill()
            began_s = time.monotonic()
            for name in lost:
                with files[name].open("a") as file:
                    file.write("second\n")
            until(stays.process, lambda: all(ends()[Place(one, 0)] > before[Place(one, 0)] for one in lost))
            row = f"failover of {len(lost)} connectors"
            bench.sheet.add(OTTLA, row, "kill -9 to the next records of all", "s", time.monotonic() - began_s)
    finally:
        cluster.close()
