"""The end-to-end probe (`--probe`): a record a second through a topic of its own, timed as clients see it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.admin.groups import commit_offsets
from ottla.admin.topics import NewTopic, create_topics
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.wire.messages import FetchRequest, ProduceRequest

if TYPE_CHECKING:
    from ottla.console.clusters import OpenCluster

_logger = logging.getLogger(__name__)

TOPIC: Final = TopicName("ottla-probe")
GROUP: Final = "ottla-probe"
EACH_S: Final = 1.0
STEPS: Final = ("produce", "roundtrip", "commit")
BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_NAMES: Final = {
    "": "ottla_probe_{}_seconds",
    "kminion": "kminion_end_to_end_{}_latency_seconds",
}
_OF_KMINION: Final = {"commit": "offset_commit"}
_SETTINGS: Final = {"retention.ms": "3600000", "cleanup.policy": "delete"}
_PRODUCE, _FETCH = 11, 12
"""The last versions that name topics."""
_TIMEOUT_MS: Final = 10_000
_WAIT_MS: Final = 5_000


@dataclass(slots=True)
class Durations:
    """A histogram."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds


class Probe:
    """The probe of one cluster."""

    def __init__(self, cluster: OpenCluster) -> None:
        self.name = cluster.name
        self.durations = {step: Durations() for step in STEPS}
        self.produced = self.received = self.failed = 0
        self._cluster = cluster
        self._client: Cluster | None = None
        self._ready = False

    async def run(self) -> None:
        """A round each second until cancelled. A round that fails is counted, and the next one starts over."""
        try:
            while True:
                began = time.monotonic()
                try:
                    await self._cluster.run(self.round)
                except ApiException as error:
                    self.failed += 1
                    _logger.info("The probe of %s failed: %s", self.name, error.message or error.code.name)
                await asyncio.sleep(max(EACH_S - (time.monotonic() - began), 0.0))
        finally:
            if self._client is not None:
                self._client.close()

    def round(self) -> None:
        """Write a record, read it back, and commit its offset."""
        client = self._client
        if client is None:
            client = self._client = Cluster(self._cluster.settings)
        try:
            self._prepare(client)
            began = time.monotonic()
            offset = _produce(client)
            self.produced += 1
            written = time.monotonic()
            self.durations["produce"].add(written - began)
            _fetch(client, offset)
            self.received += 1
            read = time.monotonic()
            self.durations["roundtrip"].add(read - began)
            commit_offsets(client, GROUP, {(TOPIC, 0): offset + 1})
            self.durations["commit"].add(time.monotonic() - read)
        except ApiException:
            # The topic, its leader or the coordinator may be elsewhere now.
            self._ready = False
            raise

    def _prepare(self, client: Cluster) -> None:
        """Make the topic if it is missing, and look up its leader, so that no lookup is timed."""
        if self._ready:
            return
        for each in create_topics(client, [NewTopic(TOPIC, 1, topic_configs=_SETTINGS)]).topics:
            if each.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise_for(each.error_code, each.error_message, TOPIC)
        client.forget_locations()
        client.leader(TOPIC, 0)
        client.coordinator(GROUP)
        self._ready = True


def _produce(client: Cluster) -> int:
    kind = ProduceRequest
    batch = build_batch([Record(0, int(time.time() * 1000), b"probe", None, [])])
    data = kind.TopicProduceData(
        name=TOPIC, partition_data=[kind.PartitionProduceData(index=0, records=batch)]
    )
    request = kind(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[data])
    (part,) = client.ask_on(client.leader(TOPIC, 0), request, _PRODUCE).responses[0].partition_responses
    raise_for(part.error_code, part.error_message, f"{TOPIC}-0")
    return part.base_offset


def _fetch(client: Cluster, offset: int) -> None:
    kind = FetchRequest
    wanted = kind.FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=1 << 16
    )
    request = kind(
        replica_id=BrokerId(-1),
        max_wait_ms=_WAIT_MS,
        min_bytes=1,
        max_bytes=1 << 16,
        session_id=0,
        session_epoch=-1,
        topics=[kind.FetchTopic(topic=TOPIC, partitions=[wanted])],
    )
    answer = client.ask_on(client.leader(TOPIC, 0), request, _FETCH)
    raise_for(answer.error_code, None, TOPIC)
    (part,) = answer.responses[0].partitions
    raise_for(part.error_code, None, f"{TOPIC}-0")
    if not part.records:
        raise ApiException(
            ErrorCode.REQUEST_TIMED_OUT, f"the record at {offset} was not there after {_WAIT_MS / 1000:.0f} s"
        )


def exposition(probe: Probe, spelling: str = "") -> str:
    """The histograms and counters of a probe, as Prometheus reads them."""
    form = _NAMES.get(spelling, _NAMES[""])
    kminion = spelling == "kminion"
    quoted = probe.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    label = f'cluster="{quoted}"'
    lines: list[str] = []
    for step, found in probe.durations.items():
        name = form.format(_OF_KMINION.get(step, step) if kminion else step)
        lines += [
            f"# HELP {name} How long the probe's {step} took.",
            f"# TYPE {name} histogram",
            *_buckets(name, label, found),
        ]
    counters = (("produced", probe.produced), ("received", probe.received), ("failed", probe.failed))
    for what, count in counters:
        name = f"kminion_end_to_end_messages_{what}_total" if kminion else f"ottla_probe_records_{what}_total"
        if what == "failed":
            name = "kminion_end_to_end_rounds_failed_total" if kminion else "ottla_probe_rounds_failed_total"
        lines += [
            f"# HELP {name} What the probe has {what}.",
            f"# TYPE {name} counter",
            f"{name}{{{label}}} {count}",
        ]
    return "\n".join(lines) + "\n"


def _buckets(name: str, label: str, found: Durations) -> Iterable[str]:
    total = 0
    for bound, count in zip((*BOUNDS_S, float("inf")), found.counts, strict=True):
        total += count
        edge = "+Inf" if bound == float("inf") else f"{bound:g}"
        yield f'{name}_bucket{{{label},le="{edge}"}} {total}'
    yield f"{name}_sum{{{label}}} {found.sum_s:.9g}"
    yield f"{name}_count{{{label}}} {total}"


@contextlib.asynccontextmanager
async def running(probes: Iterable[Probe]) -> AsyncIterator[None]:
    """Run probes for as long as the context lasts."""
    tasks = [asyncio.create_task(each.run()) for each in probes]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
