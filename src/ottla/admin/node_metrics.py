"""What nodes of a cluster show of themselves at `/metrics`: found by their configuration, read over HTTP.

Nodes of Apache Kafka, and nodes without `ottla.http.listen` or out of reach, are left out.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ottla.admin.configs import describe_configs
from ottla.errors import ApiException
from ottla.wire.enums import ConfigResourceType

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

LISTEN: Final = "ottla.http.listen"
_TIMEOUT_S: Final = 2.0
_MAX_BYTES: Final = 16 << 20
_AT_ONCE: Final = 8
_SAMPLE: Final = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*(?:\{.*\})?) ([^ ]+)$")
_SOFTWARE: Final = re.compile(
    r'^kafka_server_socket_server_metrics_connections\{clientSoftwareName="([^"]*)",clientSoftwareVersion="([^"]*)"'
)
_QUOTA: Final = re.compile(
    r'^kafka_server_(produce_byte_rate|fetch_byte_rate|request_request_time)\{user="([^"]*)",client_id="([^"]*)"\}'
)
_QUOTA_KEYS: Final = {
    "produce_byte_rate": "producer_byte_rate",
    "fetch_byte_rate": "consumer_byte_rate",
    "request_request_time": "request_percentage",
}
_ANY_ADDRESS: Final = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class NodeNumbers:
    """The numbers of one node that a person looks at first."""

    node_id: int
    busy: float
    """The share of time in which the event loop had work."""
    requests: float
    """Answered since the start."""
    produce_p99_ms: float
    fetch_p99_ms: float
    connections: float
    memory_bytes: float
    longest_stall_s: float
    clients: tuple[tuple[str, int], ...] = ()
    """Libraries with their versions, and how many connections each has; most first."""
    quotas: tuple[tuple[str, str, str, float], ...] = ()
    """The key of a quota, the user and the client id that share it, and what they use of it on this node."""


def node_numbers(cluster: Cluster) -> list[NodeNumbers]:
    """The numbers of each node that has them, by id."""
    urls: dict[int, str] = {}
    for node_id in cluster.nodes():
        try:
            url = http_url(cluster, node_id)
        except ApiException:
            continue
        if url:
            urls[node_id] = url
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda node: read_numbers(*node), urls.items())
    return sorted((each for each in found if each is not None), key=lambda each: each.node_id)


def http_url(cluster: Cluster, node_id: int) -> str:
    """Where a node serves its metrics, by its configuration; empty if it does not."""
    entries = describe_configs(cluster, [(ConfigResourceType.BROKER, str(node_id))])
    for entry in next(iter(entries.values()), []):
        if entry.name == LISTEN and entry.value:
            host, _, port = entry.value.rpartition(":")
            own = cluster.nodes()[node_id].host
            return f"http://{own if host.strip('[]') in _ANY_ADDRESS else host}:{port}"
    return ""


def read_numbers(node_id: int, url: str) -> NodeNumbers | None:
    """The numbers of a node at its address; None if it does not answer. An answer leads nowhere else."""
    try:
        parts = urlsplit(url)
        with contextlib.closing(
            HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
        ) as connection:
            connection.request("GET", "/metrics?partitions=false")
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                return None
            text = answer.read(_MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError, HTTPException):
        return None
    return numbers(node_id, samples(text))


def samples(text: str) -> dict[str, float]:
    """The samples of a page in Prometheus' format, by name and labels as they are written."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _SAMPLE.match(line)
        if match is not None:
            try:
                found[match[1]] = float(match[2])
            except ValueError:
                continue
    return found


def numbers(node_id: int, found: dict[str, float]) -> NodeNumbers:
    """The numbers of a node from its samples."""

    def total(prefix: str) -> float:
        return sum(value for name, value in found.items() if name.startswith(prefix))

    times = "kafka_network_requestmetrics_totaltimems"
    return NodeNumbers(
        node_id=node_id,
        busy=found.get("ottla_event_loop_busy_ratio", 0.0),
        requests=total("kafka_network_requestmetrics_requests_total{")
        - total('kafka_network_requestmetrics_requests_total{request="Fetch",'),
        produce_p99_ms=found.get(times + '{request="Produce",quantile="0.99"}', 0.0),
        fetch_p99_ms=found.get(times + '{request="FetchConsumer",quantile="0.99"}', 0.0),
        connections=total("kafka_server_socket_server_metrics_connection_count{"),
        memory_bytes=found.get("process_resident_memory_bytes", 0.0),
        longest_stall_s=found.get("ottla_event_loop_longest_stall_seconds", 0.0),
        clients=_clients(found),
        quotas=tuple(
            (_QUOTA_KEYS[match[1]], match[2], match[3], value)
            for name, value in found.items()
            if (match := _QUOTA.match(name)) is not None
        ),
    )


def _clients(found: dict[str, float]) -> tuple[tuple[str, int], ...]:
    counts: Counter[str] = Counter()
    for name, value in found.items():
        match = _SOFTWARE.match(name)
        if match is not None and value > 0:
            counts[f"{match[1]} {match[2]}".strip() or "unnamed"] += int(value)
    return tuple(counts.most_common())
