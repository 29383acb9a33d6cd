"""One scrape: asks every reader in slices of the event loop's time, and keeps the text for a second.

One scrape runs at a time for each spelling; who asks meanwhile gets its text.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.metrics import names
from ottla.metrics.cluster_metrics import ClusterMetrics, UncleanElections
from ottla.metrics.families import Spelling
from ottla.metrics.process_metrics import GarbageCollections, ProcessMetrics
from ottla.metrics.rates import Rates
from ottla.metrics.replica_metrics import ReplicaMetrics, Wanted
from ottla.metrics.request_metrics import RequestMetrics
from ottla.metrics.sinks import Sink, TextSink

if TYPE_CHECKING:
    from ottla.metrics.sources import Sources

SLICE_S: Final = 0.002
KEEP_S: Final = 1.0
_MAX_KEPT: Final = 8

Pieces = list[bytes]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a scrape wants: `?names=`, `?topics=` as it was given, and whether partitions have their own samples."""

    spelling: Spelling = Spelling.KAFKA
    topics: str = ""
    each_partition: bool = True


class Collector:
    """Reads one node's metrics. Use it on the event loop."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._clock = clock = sources.node.clock
        self._rates = Rates(clock.monotonic())
        self._collections = GarbageCollections()
        self._unclean = UncleanElections()
        self._requests = RequestMetrics(sources.node, self._rates)
        self._cluster = ClusterMetrics(sources.node, sources.loader, self._unclean, self._rates)
        self._process = ProcessMetrics(sources.node.node_id, sources.watchdog, self._collections)
        self._replicas: ReplicaMetrics | None = None
        self._kept: dict[Asked, tuple[float, Pieces]] = {}
        self._running: dict[Asked, asyncio.Task[Pieces]] = {}

    def start(self) -> None:
        """Begin to count what only callbacks can count."""
        self._collections.start()
        self._sources.loader.add_publisher(self._unclean.publish)

    def stop(self) -> None:
        self._collections.stop()
        for task in self._running.values():
            task.cancel()

    async def text(self, asked: Asked, wanted: Wanted | None = None) -> Pieces:
        """The metrics in Prometheus' text format, in pieces. `wanted` is what `asked.topics` means."""
        now = self._clock.monotonic()
        kept = self._kept.get(asked)
        if kept is not None and now - kept[0] < KEEP_S:
            return kept[1]
        task = self._running.get(asked)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._collect(asked, wanted))
            self._running[asked] = task
            task.add_done_callback(lambda _: self._running.pop(asked, None))
        # A client that goes away must not end the scrape of others.
        return await asyncio.shield(task)

    async def _collect(self, asked: Asked, wanted: Wanted | None) -> Pieces:
        sink = TextSink(asked.spelling)
        await self.fill(sink, wanted, each_partition=asked.each_partition)
        text = sink.parts
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        self._kept[asked] = self._clock.monotonic(), text
        return text

    async def fill(self, sink: Sink, wanted: Wanted | None, *, each_partition: bool) -> None:
        """Read everything into a sink, in slices."""
        monotonic = self._clock.monotonic
        until = monotonic() + SLICE_S
        for _ in self._read(sink, wanted, each_partition=each_partition):
            if monotonic() >= until:
                await asyncio.sleep(0)
                until = monotonic() + SLICE_S

    def _read(self, sink: Sink, wanted: Wanted | None, *, each_partition: bool) -> Iterator[None]:
        sources = self._sources
        broker = sources.broker()
        yield from self._process.read(sink)
        sink.one(names.PREALLOCATED, sources.preallocated_bytes())
        sink.one(names.RECOVERY_SECONDS, round(sources.recovery_s(), 6))
        if broker is not None:
            sink.one(names.TELEMETRY_CLIENTS, len(broker.telemetry))
            sink.one(names.TELEMETRY_PUSHES, broker.telemetry.pushes)
        yield from self._requests.read(sink, broker)
        yield from self._cluster.read(sink, broker)
        if broker is not None:
            if self._replicas is None:
                self._replicas = ReplicaMetrics(broker, self._rates)
            yield from self._replicas.read(sink, wanted, each_partition=each_partition)


def compressed(text: Pieces) -> bytes:
    """The text as gzip, for `Accept-Encoding`. Call it in a thread."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return b"".join([*(packer.compress(piece) for piece in text), packer.flush()])
