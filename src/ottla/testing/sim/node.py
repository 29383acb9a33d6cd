"""One simulated node: the production server on its own file system, across all its restarts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.broker.lifecycle import BrokerState
from ottla.broker.storage_format import format_directory, node_directories, plan_directories
from ottla.config.broker import BrokerConfig
from ottla.server import Environment, Server
from ottla.testing.memfs import MemFs
from ottla.testing.sim.clock import SimClock
from ottla.testing.sim.listeners import SimListeners
from ottla.testing.sim.loop import SimLoop
from ottla.testing.sim.network import Network
from ottla.testing.sim.process import Process, SimExecutor

if TYPE_CHECKING:
    from ottla.broker.services import Broker
    from ottla.metadata.image import MetadataImage
    from ottla.raft.driver import RaftDriver
    from ottla.raft.voters import VoterSet

CLUSTER_ID: Final = "c2ltdWxhdGVkLWNsdXN0ZQ"
CONTROLLER_PORT: Final = 9093


class SimNode:
    """A node with its `host` on the network, and all faults of a single machine."""

    def __init__(
        self,
        loop: SimLoop,
        network: Network,
        node_id: int,
        properties: Mapping[str, str],
        rng: random.Random,
        on_failed: Callable[[SimNode, BaseException], None],
        voters: VoterSet | None = None,
    ) -> None:
        self.loop = loop
        self.network = network
        self.node_id = node_id
        self.host = f"n{node_id}"
        self.random = rng
        self.clock = SimClock(loop, rng, skew_ms=rng.randint(-200, 200))
        self.config = BrokerConfig(properties)
        self.fs = MemFs(self.clock.now_ms)
        self.slow_disk = 0.0
        """The longest additional delay of work in threads, in seconds."""
        self.server: Server | None = None
        self.process: Process | None = None
        self.lives = 0
        self.sick = False
        """Whether the disk fails: the node may then stop."""
        self.damaged: tuple[str, int, int] | None = None
        """A flipped bit: its path, its position, and the damaged byte."""
        self.directory_id = b""
        self._on_failed = on_failed
        self._format(voters)

    def _format(self, voters: VoterSet | None) -> None:
        """Format the directories. `voters` is the first voter set of a dynamic quorum, with this node."""
        for directory in plan_directories(
            self.config, node_directories(self.config), self.clock.random_uuid, voters
        ):
            self.directory_id = directory.directory_id
            format_directory(
                self.fs,
                directory,
                cluster_id=CLUSTER_ID,
                node_id=self.node_id,
                records=None,
                now_ms=self.clock.now_ms(),
            )

    @property
    def dynamic(self) -> bool:
        """The voters are in the log, not in the configuration."""
        return not self.config.voters

    @property
    def broker(self) -> Broker | None:
        return None if self.server is None else self.server.broker

    @property
    def raft(self) -> RaftDriver | None:
        """The raft driver, while the node runs."""
        alive = self.alive and self.server is not None and self.server.node is not None
        return self.server.node.raft if alive else None  # type: ignore[union-attr]

    @property
    def image(self) -> MetadataImage | None:
        alive = self.alive and self.server is not None and self.server.node is not None
        return self.server.node.image if alive else None  # type: ignore[union-attr]

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def serves(self) -> bool:
        """Whether the controller has unfenced the broker."""
        broker = self.broker if self.alive else None
        return broker is not None and broker.lifecycle.state is BrokerState.RUNNING

    # -- start, stop and failures

    def start(self) -> None:
        """Start a new process on a healthy disk."""
        assert not self.alive
        self.cure()
        self.sick = self.damaged is not None
        self.lives += 1
        self.process = process = Process(f"{self.host}.{self.lives}", self.host)
        executor = SimExecutor(self.loop, self.random, self._disk_delay)
        self.server = server = Server(
            self.config,
            Environment(
                clock=self.clock,
                fs=self.fs,
                executor=executor,
                page_cache=None,
                cleaner_threads=lambda count: SimExecutor(self.loop, self.random, self._disk_delay),
                connect=self._connect,
                make_listeners=lambda config, clock: SimListeners(config, clock, self.network, process),
            ),
        )
        self.loop.spawn(process, self._run(server))

    async def _run(self, server: Server) -> None:
        try:
            await server.start()
            failure = await server.wait_failed()
        except Exception as error:  # noqa: BLE001 - a node that cannot start is a finding, not an end of the run
            failure = error
        self._on_failed(self, failure)
        self.kill()

    async def _connect(self, new_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> None:
        self.fs.take_descriptor(f"{host}:{port}")
        await self.network.connect(new_protocol, host, port)

    def _disk_delay(self) -> float:
        delay = self.random.random() * 0.002
        return delay + self.random.random() * self.slow_disk if self.slow_disk else delay

    def kill(self) -> None:
        """Kill the process: written data stays, memory is lost."""
        if self.alive:
            self._end()
            self.fs = self.fs.kill()

    def lose_power(self) -> None:
        """Cut the power: unsynced data may be lost, too."""
        if self.alive:
            self._end()
            self.fs = self.fs.crash(self.random)

    def _end(self) -> None:
        assert self.process is not None
        process, self.process, self.server = self.process, None, None
        process.die()
        self.network.died(process)

    def wipe(self) -> None:
        """Replace the disk by a new one, formatted for a node that joins a cluster."""
        assert not self.alive
        self.fs = MemFs(self.clock.now_ms)
        self._format(None)

    @property
    def directories(self) -> list[str]:
        """The log directories and that of the metadata log."""
        found = [*self.config.log_dirs, self.config.metadata_log_dir]
        return sorted(set(found))

    def damage(self, path: str, bit: int) -> None:
        """Flip a bit of a file while the node is down. Its processes are sick until `repair`."""
        assert not self.alive
        self.fs.flip_bit(path, bit)
        self.damaged = (path, bit, self.fs.read_bytes(path)[bit // 8])

    def repair(self) -> None:
        """Flip the bit back, unless recovery has removed or replaced it."""
        assert not self.alive
        if self.damaged is not None:
            path, bit, byte = self.damaged
            self.damaged = None
            if self.fs.exists(path):
                data = self.fs.read_bytes(path)
                if len(data) > bit // 8 and data[bit // 8] == byte:
                    self.fs.flip_bit(path, bit)

    def cure(self) -> None:
        """Repair the disk. Writes that failed stay lost."""
        self.slow_disk = 0.0
        self.fs.space = self.fs.fault = self.fs.descriptors_left = None
        self.fs.directory_space.clear()
        if not self.alive:
            self.sick = False

    def hold(self) -> None:
        """Pause the process (SIGSTOP)."""
        if self.process is not None:
            self.process.hold()

    def resume(self) -> None:
        if self.process is not None and self.process.alive and not self.process.running:
            self.loop.resume(self.process)

    def stop(self) -> asyncio.Task[None] | None:
        """Stop the node cleanly."""
        if self.process is None or self.server is None:
            return None
        return self.loop.spawn(self.process, self._stop(self.server))

    async def _stop(self, server: Server) -> None:
        await server.stop()
        if self.server is server:
            self._end()
            self.fs = self.fs.kill()
