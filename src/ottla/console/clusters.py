"""Open clusters by name: administration in a pool of threads, the sampler's state, and the reader of records."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from ottla.console.liveness import Liveness, WatchedCluster
from ottla.console.reader.fetch import Reader
from ottla.console.sampler.loop import Sampler
from ottla.console.sampler.state import ClusterState
from ottla.console.segments import Segments
from ottla.console.services import Answer, Service, Services
from ottla.json_types import Json

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.admin.partitions import Partition
    from ottla.admin.settings import ClusterSettings
    from ottla.console.reader.records import Seen
    from ottla.console.reader.share_state import Delivered, Place
    from ottla.console.sampler.why import Next

THREADS: Final = 8
"""Calls that wait for brokers at the same time, over all clusters."""
REQUEST_TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 3.0

P = ParamSpec("P")
T = TypeVar("T")


class OpenCluster:
    """One cluster of the console."""

    def __init__(
        self, name: str, settings: ClusterSettings, pool: ThreadPoolExecutor, services: Services
    ) -> None:
        self.name = name
        self.services = services
        self.settings = replace(
            settings,
            request_timeout_s=min(settings.request_timeout_s, REQUEST_TIMEOUT_S),
            connect_timeout_s=CONNECT_TIMEOUT_S,
        )
        self.bootstrap = ",".join(f"{host}:{port}" for host, port in settings.bootstrap)
        self.state = ClusterState(name)
        self.reader = Reader(self.settings)
        self.liveness = Liveness(self.settings, self.reader.cut)
        self.reader.hangs = self.liveness.hangs
        self.sampler = Sampler(self.state, self.call)
        self.next_records: dict[tuple[Partition, int], tuple[int, Seen, Next]] = {}
        """The records at committed offsets, with the last stable offset and what the offsets behind them are."""
        self.common_keys: dict[Partition, tuple[float, tuple[Seen, int] | None, int]] = {}
        """When the keys of a partition were counted, a record with the commonest and how often it is, of how many."""
        self.weeks: dict[str, tuple[float, list[float]]] = {}
        """When Prometheus was asked for an expression, and what it answered."""
        self.subjects: tuple[float, list[str]] | None = None
        """Until when the answer of the registry about its subjects is used, and the answer."""
        self.deliveries: dict[str, tuple[float, dict[Place, Delivered], bool]] = {}
        """When the state of a share group was read, what it is, and whether that is all of it."""
        self.copied: dict[Partition, deque[tuple[float, int]]] = {}
        """When a move was looked at, and the bytes that were there."""
        self.segments = Segments(self, services.data)
        self._pool = pool
        self._idle: list[Cluster] = []

    async def call(
        self, function: Callable[Concatenate[Cluster, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The result of an administrative function, which gets a cluster client of its own and may block."""

        def run() -> T:
            client = self._idle.pop() if self._idle else WatchedCluster(self.settings, self.liveness)
            try:
                return function(client, *args, **kwargs)
            finally:
                self._idle.append(client)

        return await asyncio.get_running_loop().run_in_executor(self._pool, run)

    async def ask(self, service: Service, method: str, path: str, body: Json = None) -> Answer:
        """The answer of a service beside the cluster, asked in the pool."""
        return await self.run(service.ask, method, path, body)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a function that blocks."""
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, partial(function, *args, **kwargs)
        )

    def addresses(self) -> set[tuple[str, int]]:
        """Where the cluster's brokers listen, as far as they are known."""
        known = {(node.host, node.port) for node in self.state.nodes.values() if not node.fenced}
        return known or set(self.settings.bootstrap)

    def hanging(self) -> list[int]:
        """The brokers that hold connections open and do not answer."""
        nodes = self.state.nodes.values()
        return [node.node_id for node in nodes if self.liveness.hangs(node.host, node.port)]

    def answering(self) -> list[int]:
        """The brokers that answer, as far as is known."""
        silent = set(self.hanging())
        nodes = self.state.nodes.values()
        return [
            node.node_id for node in nodes if node.answers and not node.fenced and node.node_id not in silent
        ]

    async def close(self) -> None:
        await self.reader.close()
        while self._idle:
            self._idle.pop().close()


class OpenClusters:
    """All clusters of the console, by name."""

    def __init__(self, targets: dict[str, ClusterSettings], services: Mapping[str, Services]) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="console")
        self.by_name = {
            name: OpenCluster(name, settings, self._pool, services.get(name, Services()))
            for name, settings in targets.items()
        }

    @property
    def first(self) -> OpenCluster:
        return next(iter(self.by_name.values()))

    async def run(self) -> None:
        """Sample all clusters until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cluster in self.by_name.values():
                group.create_task(cluster.sampler.run())
                group.create_task(cluster.liveness.run(cluster.addresses, cluster.sampler.awake))

    async def close(self) -> None:
        for cluster in self.by_name.values():
            await cluster.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
