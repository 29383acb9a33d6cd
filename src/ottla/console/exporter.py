"""Lag for Prometheus, from the sampler, under the names that existing dashboards ask for; and the console's health."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse, PlainTextResponse, Response

from ottla.console import probe
from ottla.console.sampler.lag import behind_by_partition
from ottla.console.sampler.state import FOR_EVER
from ottla.console.security.roles import SEE

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.console.app import Console
    from ottla.console.sampler.state import ClusterState, GroupState

_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Rows = list[tuple[dict[str, object], float]]
Family = tuple[str, str, Rows]
"""Name, help, and the labels and value of each row. All are gauges."""


def _escaped(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def exposition(families: Iterable[Family]) -> str:
    """The text that Prometheus reads."""
    lines: list[str] = []
    for name, text, rows in families:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
        for labels, value in rows:
            inside = ",".join(f'{key}="{_escaped(each)}"' for key, each in labels.items())
            lines.append(f"{name}{{{inside}}} {value:.15g}" if inside else f"{name} {value:.15g}")
    return "\n".join(lines) + "\n"


def _group_partitions(state: ClusterState) -> Iterable[tuple[GroupState, str, int, int, int]]:
    """(group, topic, partition, committed offset, lag)"""
    for group in state.groups.values():
        for (topic, number), offset in group.committed.items():
            known = state.topics.get(topic)
            if known is not None and number < len(known.ends) and known.ends[number] >= 0:
                yield group, topic, number, offset, max(known.ends[number] - offset, 0)


def kafka_exporter(state: ClusterState) -> list[Family]:
    """The names of kafka_exporter, which its dashboard asks for."""
    parts: dict[str, Rows] = {
        name: []
        for name in (
            "current_offset", "oldest_offset", "in_sync_replica", "leader", "leader_is_preferred", "replicas",
            "under_replicated_partition",
        )
    }  # fmt: skip
    for topic, number in state.partitions():
        labels: dict[str, object] = {"topic": topic.name, "partition": number}
        leader, replicas, isr = topic.leaders[number], topic.replicas[number], topic.isr[number]
        for name, value in (
            ("current_offset", topic.ends[number] if number < len(topic.ends) else -1),
            ("oldest_offset", topic.starts[number] if number < len(topic.starts) else -1),
            ("in_sync_replica", len(isr)),
            ("leader", leader),
            ("leader_is_preferred", int(bool(replicas) and leader == replicas[0])),
            ("replicas", len(replicas)),
            ("under_replicated_partition", int(len(isr) < len(replicas))),
        ):
            parts[name].append((labels, value))
    committed: Rows = []
    lags: Rows = []
    sums: dict[tuple[str, str], int] = {}
    for group, topic_name, number, offset, lag in _group_partitions(state):
        labels = {"consumergroup": group.group_id, "topic": topic_name, "partition": number}
        committed.append((labels, offset))
        lags.append((labels, lag))
        sums[group.group_id, topic_name] = sums.get((group.group_id, topic_name), 0) + lag
    members: Rows = [
        ({"consumergroup": group.group_id}, group.members)
        for group in state.groups.values()
        if group.members >= 0
    ]
    return [
        ("kafka_brokers", "Brokers of the cluster.", [({}, len(state.nodes))]),
        (
            "kafka_broker_info",
            "The brokers.",
            [
                ({"id": node.node_id, "address": f"{node.host}:{node.port}"}, 1)
                for node in state.nodes.values()
            ],
        ),
        (
            "kafka_topic_partitions",
            "Partitions of the topic.",
            [({"topic": each.name}, each.partitions) for each in state.topics.values()],
        ),
        *(
            (f"kafka_topic_partition_{name}", f"{name} of the partition.", rows)
            for name, rows in parts.items()
        ),
        ("kafka_consumergroup_current_offset", "The committed offset.", committed),
        ("kafka_consumergroup_lag", "Records that the group has not read.", lags),
        (
            "kafka_consumergroup_lag_sum",
            "The same, over the topic.",
            [({"consumergroup": group, "topic": name}, lag) for (group, name), lag in sums.items()],
        ),
        ("kafka_consumergroup_members", "Members of the group.", members),
    ]


def lag_exporter(state: ClusterState) -> list[Family]:
    """The names of kafka-lag-exporter, which Conduktor uses as well."""
    name = state.name
    lags: Rows = []
    sums: dict[str, int] = {}
    most: dict[str, int] = {}
    for group, topic, number, _, lag in _group_partitions(state):
        labels: dict[str, object] = {
            "cluster_name": name,
            "group": group.group_id,
            "topic": topic,
            "partition": number,
        }
        lags.append((labels, lag))
        sums[group.group_id] = sums.get(group.group_id, 0) + lag
        most[group.group_id] = max(most.get(group.group_id, 0), lag)
    offsets: Rows = [
        ({"cluster_name": name, "group": group.group_id, "topic": topic, "partition": number}, offset)
        for group, topic, number, offset, _ in _group_partitions(state)
    ]
    behind: Rows = [
        ({"cluster_name": name, "group": group.group_id, "topic": topic, "partition": number}, behind_s)
        for group in state.groups.values()
        for (topic, number), _, behind_s in behind_by_partition(state, group, state.taken_s)
        if behind_s is not None
    ]
    seconds: Rows = [
        ({"cluster_name": name, "group": group.group_id}, group.lag_s)
        for group in state.groups.values()
        if group.lag_s is not None and group.committed
    ]
    ends: Rows = []
    starts: Rows = []
    for known, number in state.partitions():
        place: dict[str, object] = {"cluster_name": name, "topic": known.name, "partition": number}
        if number < len(known.ends):
            ends.append((place, known.ends[number]))
        if number < len(known.starts):
            starts.append((place, known.starts[number]))

    def of(numbers: dict[str, int]) -> Rows:
        return [({"cluster_name": name, "group": group}, value) for group, value in numbers.items()]

    return [
        ("kafka_consumergroup_group_offset", "The committed offset.", offsets),
        ("kafka_consumergroup_group_lag", "Records that the group has not read.", lags),
        ("kafka_consumergroup_group_lag_seconds", "Age of the partition's oldest unread record.", behind),
        ("kafka_consumergroup_group_sum_lag", "The same, over all partitions.", of(sums)),
        ("kafka_consumergroup_group_max_lag", "Of the partition that is furthest behind.", of(most)),
        ("kafka_consumergroup_group_max_lag_seconds", "Age of the oldest unread record.", seconds),
        ("kafka_partition_latest_offset", "The end of the partition.", ends),
        ("kafka_partition_earliest_offset", "The start of the partition.", starts),
    ]


def kminion(state: ClusterState) -> list[Family]:
    """The names of kminion."""
    parts: Rows = []
    sums: dict[tuple[str, str], int] = {}
    for group, topic, number, _, lag in _group_partitions(state):
        parts.append(({"group_id": group.group_id, "topic_name": topic, "partition_id": number}, lag))
        sums[group.group_id, topic] = sums.get((group.group_id, topic), 0) + lag
    high: Rows = []
    low: Rows = []
    for known, number in state.partitions():
        labels: dict[str, object] = {"topic_name": known.name, "partition_id": number}
        if number < len(known.ends):
            high.append((labels, known.ends[number]))
        if number < len(known.starts):
            low.append((labels, known.starts[number]))
    return [
        (
            "kminion_kafka_consumer_group_info",
            "The group.",
            [
                ({"group_id": group.group_id, "state": group.state, "protocol_type": group.protocol}, 1)
                for group in state.groups.values()
            ],
        ),
        ("kminion_kafka_consumer_group_topic_partition_lag", "Records that the group has not read.", parts),
        (
            "kminion_kafka_consumer_group_topic_lag",
            "The same, over the topic.",
            [({"group_id": group, "topic_name": name}, lag) for (group, name), lag in sums.items()],
        ),
        ("kminion_kafka_topic_partition_high_water_mark", "The end of the partition.", high),
        ("kminion_kafka_topic_partition_low_water_mark", "The start of the partition.", low),
    ]


def _time_to_loss_s(state: ClusterState, group: GroupState) -> float | None:
    """Until retention deletes the first record that a group has not read; None if it reads all, or nobody knows."""
    if not group.lag:
        return None
    found = [
        topic.keep_ms / 1000 - behind_s
        for _, topic, behind_s in behind_by_partition(state, group, state.taken_s)
        if behind_s and topic.keep_ms not in (None, FOR_EVER)
    ]
    return min(found, default=None)


def own(state: ClusterState) -> list[Family]:
    """What is ours: verdicts, and the state of the sampler."""
    verdicts: Rows = [
        ({"cluster": state.name, "consumergroup": group.group_id, "verdict": finding.rule}, 1)
        for group in state.groups.values()
        for finding in group.findings
    ]
    return [
        ("ottla_consumergroup_verdict", "1 for each finding about the group.", verdicts),
        (
            "ottla_consumergroup_time_to_loss_seconds",
            "Until retention deletes the group's oldest unread record; of groups that lag.",
            [
                ({"cluster": state.name, "consumergroup": group.group_id}, left_s)
                for group in state.groups.values()
                if (left_s := _time_to_loss_s(state, group)) is not None
            ],
        ),
        (
            "ottla_console_sample_seconds",
            "How long the last round took.",
            [({"cluster": state.name}, state.took_s)],
        ),
        (
            "ottla_console_sample_age_seconds",
            "How old the numbers are.",
            [({"cluster": state.name}, max(time.time() - state.taken_s, 0.0))],
        ),
    ]


_SPELLINGS: Final = {"": kafka_exporter, "lag-exporter": lag_exporter, "kminion": kminion}


def endpoint(console: Console) -> Callable[[Request], Awaitable[Response]]:
    """`/metrics`. Several clusters: `?cluster=NAME`; the first one otherwise."""

    async def metrics(request: Request) -> Response:
        principal = console.principal(request)
        if principal is None:
            return PlainTextResponse("Sign in first.\n", 401)
        clusters = console.clusters_of(request)
        name = request.query_params.get("cluster", clusters.first.name)
        spelling = _SPELLINGS.get(request.query_params.get("names", ""))
        cluster = clusters.by_name.get(name)
        if cluster is None or spelling is None:
            return PlainTextResponse("There is no such cluster, or no such spelling of names.\n", 404)
        # Its samples name every topic and group.
        if not all(principal.may(SEE, name, each) for each in ("cluster", "topic:*", "group:*")):
            return PlainTextResponse(f"{principal.name} may not see all of {name}.\n", 403)
        cluster.sampler.touch()
        if not await console.wait_ready(cluster):
            return PlainTextResponse(f"{cluster.state.problem}\n", 503)
        text = exposition([*spelling(cluster.state), *own(cluster.state)])
        if name in console.probes:
            text += probe.exposition(console.probes[name], request.query_params.get("names", ""))
        return PlainTextResponse(text, media_type=_TYPE)

    return metrics


async def alive(_: Request) -> Response:
    """`/health/live`: the loop answers."""
    return JSONResponse({"live": True})


def ready(console: Console) -> Callable[[Request], Awaitable[Response]]:
    """`/health/ready`: every cluster has answered, and its last round did not fail."""

    async def answer(_: Request) -> Response:
        if console.logins is not None:
            # Nothing is asked of the clusters before somebody signs in.
            return JSONResponse({"ready": True, "problems": {}})
        problems = {
            name: each.state.problem or "not sampled yet"
            for name, each in console.clusters.by_name.items()
            if not each.state.ready or each.state.problem
        }
        return JSONResponse({"ready": not problems, "problems": problems}, 503 if problems else 200)

    return answer
