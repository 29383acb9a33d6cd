"""What is measured, by theme. A row runs on both systems in turn and adds samples to the sheet."""

from __future__ import annotations

from collections.abc import Callable

from bench.context import Bench
from bench.rows import (
    client,
    cluster,
    connect,
    console,
    coordination,
    growth,
    inside,
    java_tools,
    latency,
    lifecycle,
    many,
    mirror,
    pipeline,
    processes,
    registry,
    requests,
    secure,
    throughput,
)

Row = Callable[[Bench], None]

WARM_ROWS: dict[str, Row] = {
    "throughput": throughput.sizes,
    "acks": throughput.acks,
    "codecs": throughput.codecs,
    "partitions": throughput.partitions,
    "requests": requests.one_record,
    "clients": requests.many_clients,
    "java": java_tools.java_tools,
    "client": client.client,
    "latency": latency.steady,
    "cold": latency.beside_a_cold_read,
    "compaction": latency.beside_a_compaction,
    "groups": coordination.groups,
    "commits": coordination.commits,
    "transactions": coordination.transactions,
    "sink": pipeline.sink,
    "reader": pipeline.reader,
    "word-count": pipeline.word_count,
    "windowed-count": pipeline.windowed_count,
    "stream-latency": pipeline.stream_latency,
    "log-size": growth.log_size,
    "curve": growth.partition_curve,
}
"""Rows on systems that are up and warm."""

OWN_ROWS: dict[str, Row] = {
    "start": lifecycle.start,
    "restart": lifecycle.restart,
    "many-partitions": many.one_node,
    "cluster-partitions": many.cluster,
    "cluster": cluster.steady,
    "failover": cluster.failover,
    "processes": processes.processes,
    "secure": secure.secure,
    "mirror": mirror.mirror,
    "connect": connect.connect,
    "registry": registry.registry,
    "console": console.console,
    "micro": inside.micro,
    "limits": inside.limits,
}
"""Rows that start what they need themselves."""

ROWS = WARM_ROWS | OWN_ROWS
FULL_ROWS = tuple(name for name in ROWS if name != "cluster-partitions")
"""What the full form runs when no rows are named: all but the row that takes longest."""
QUICK_ROWS = ("throughput", "acks", "requests", "clients", "latency", "start", "micro", "limits")
"""What the quick form runs when no rows are named."""
