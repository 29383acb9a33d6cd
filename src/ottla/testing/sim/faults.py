"""The faults of a simulated run: chosen by the seed, each for a while, then undone."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.testing.sim import machine_faults
from ottla.testing.sim.clients import Clients
from ottla.testing.sim.network import Network
from ottla.testing.sim.node import SimNode
from ottla.testing.sim.orders import Orders
from ottla.testing.sim.watch import Watch

if TYPE_CHECKING:
    from ottla.testing.sim.plan import Plan

Fault = Callable[["Faults"], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Victims:
    """Everything that faults can act on."""

    nodes: Sequence[SimNode]
    network: Network
    watch: Watch
    in_sync: Callable[[], bool]
    """Whether all replicas of all partitions are in sync, according to the metadata."""
    orders: Orders
    clients: Clients
    note: Callable[[str], None]


class Campaign:
    """Rounds of faults, sometimes two at once. Each round has its own random source, so that one can be left out."""

    def __init__(self, victims: Victims, seed: int) -> None:
        self._victims = victims
        self._seed = seed
        self.rounds = 0
        """The number of rounds so far."""

    async def run(self, plan: Plan) -> None:
        """Run all rounds, then heal everything."""
        loop = self._victims.network.loop
        end = loop.time() + plan.fault_s
        while plan.kinds and loop.time() < end and self.rounds != plan.rounds:
            number, self.rounds = self.rounds, self.rounds + 1
            if number not in plan.left_out:
                await self._round(random.Random(f"{self._seed} {number}"), plan.kinds)
        Faults(self._victims, random.Random(self._seed)).heal()

    async def _round(self, rng: random.Random, kinds: Sequence[str]) -> None:
        faults = Faults(self._victims, rng)
        chosen = rng.sample(sorted(kinds), min(len(kinds), 1 + (rng.random() < 0.4)))
        if any(kind in _FORGETFUL for kind in chosen) and any(kind in _DEADLY for kind in chosen):
            # As in Kafka, a controller cannot know which replica lost data when the whole ISR died at once.
            chosen = chosen[:1]
        await asyncio.gather(*(FAULTS[kind](faults) for kind in chosen))
        await asyncio.sleep(rng.random() ** 2 * 1.5)


class Faults:
    """The faults. Victims and durations are random."""

    def __init__(self, victims: Victims, rng: random.Random) -> None:
        self.nodes = victims.nodes
        self.network = victims.network
        self.watch = victims.watch
        self.note = victims.note
        self._in_sync = victims.in_sync
        self._orders = victims.orders
        self._clients = victims.clients
        self.random = rng

    def heal(self) -> None:
        """Undo all faults and start dead nodes."""
        self.note("heal")
        self.network.heal()
        self.watch.on_vote = self.watch.on_acknowledge = None
        for node in self.nodes:
            node.cure()
            node.clock.drift(0.0)
            node.clock.skew_ms = 0
            node.resume()
            if node.damaged is not None:
                node.kill()
                node.repair()
            if not node.alive:
                node.start()

    # -- victims and durations

    def one(self) -> SimNode:
        return self.random.choice(self.nodes)

    def _by_host(self, host: str) -> SimNode:
        return next(node for node in self.nodes if node.host == host)

    def _quorum_leader(self) -> SimNode:
        leaders = [node for node in self.nodes if (raft := node.raft) is not None and raft.is_leader]
        return self.random.choice(leaders) if leaders else self.one()

    def leader(self) -> SimNode:
        """Return a node that leads the quorum or some partitions."""
        leaders = [
            node
            for node in self.nodes
            if (broker := node.broker) is not None and any(p.is_leader for p in broker.replicas.partitions())
        ]
        if not leaders or self.random.random() < 0.2:
            return self._quorum_leader()
        return self.random.choice(leaders)

    async def for_a_while(self, longest_s: float) -> None:
        await asyncio.sleep(0.02 + self.random.random() ** 2 * longest_s)

    def start(self, node: SimNode) -> None:
        if not node.alive:
            self.note(f"start {node.host}")
            node.start()

    # -- processes

    async def kill(self) -> None:
        node = self.one()
        if node.alive:
            self.note(f"kill {node.host}")
            node.kill()
            await self.for_a_while(6)
            self.start(node)

    async def kill_all(self) -> None:
        self.note("kill all")
        for node in self.nodes:
            node.kill()
        await self.for_a_while(2)
        for node in self.random.sample(list(self.nodes), len(self.nodes)):
            await asyncio.sleep(self.random.random() ** 3 * 0.5)
            self.start(node)

    async def lose_power(self) -> None:
        if not self.one_may_forget():
            return
        node = self.leader()
        self.note(f"power loss of {node.host}")
        node.lose_power()
        await self.for_a_while(3)
        self.start(node)
        await self.caught_up()

    def one_may_forget(self) -> bool:
        """Return whether a power loss is safe: only while all nodes serve and are in sync. Data that two machines lose,
        or the only up-to-date one, is gone. A node that serves has read the ISR changes after its last death.
        """
        return all(node.serves for node in self.nodes) and self._in_sync()

    async def caught_up(self) -> None:
        """Wait until the node has caught up, so that no second one fails before."""
        for _ in range(50):
            if self.one_may_forget():
                return
            await asyncio.sleep(0.2)

    async def stop(self) -> None:
        node = self.one()
        task = node.stop()
        if task is None:
            return
        self.note(f"stop {node.host}")
        await asyncio.wait([task], timeout=10)
        if task.done() and not task.cancelled() and (error := task.exception()) is not None and not node.sick:
            self.note(f"{node.host} did not stop in order: {error}")
        await self.for_a_while(3)
        self.start(node)

    async def hold(self) -> None:
        node = self.leader()
        self.note(f"hold {node.host}")
        node.hold()
        await self.for_a_while(7)
        self.note(f"resume {node.host}")
        node.resume()

    # -- moments

    async def kill_acknowledging(self) -> None:
        """Kill a broker while it acknowledges records to a producer."""
        died: asyncio.Future[SimNode] = self.network.loop.create_future()
        count = self.random.randint(1, 4)

        def acknowledges(host: str) -> None:
            nonlocal count
            count -= 1
            if count == 0:
                self.watch.on_acknowledge = None
                node = self._by_host(host)
                self._kill_at_once_or_soon(node, lambda: died.set_result(node))

        self.watch.on_acknowledge = acknowledges
        await asyncio.wait([died], timeout=3)
        if died.done():
            await self.for_a_while(4)
            self.start(died.result())
        elif self.watch.on_acknowledge is acknowledges:
            self.watch.on_acknowledge = None

    async def kill_voting(self) -> None:
        """Kill the quorum's leader, and voters while they vote; isolate the candidate that they voted for.

        The restarted voters hold an election among themselves: had they forgotten their votes, in the same epoch.
        """
        leader = self._quorum_leader()
        kills = self.random.randint(1, 4)
        voted: asyncio.Future[None] = self.network.loop.create_future()

        def votes(host: str, candidate: str) -> None:
            nonlocal kills
            kills -= 1
            if kills <= 0:
                self.watch.on_vote = None
            node = self._by_host(host)
            if not voted.done() and self.random.random() < 0.7:
                self._isolate(self._by_host(candidate), both=True)
                voted.set_result(None)
            self._kill_at_once_or_soon(node, lambda: self._back_soon(node))

        self.watch.on_vote = votes
        self.note(f"kill {leader.host}, and voters")
        leader.kill()
        await asyncio.wait([voted], timeout=self.random.random() * 3)
        self.start(leader)
        await self.for_a_while(3)
        self.mend_links()
        if self.watch.on_vote is votes:
            self.watch.on_vote = None

    def _back_soon(self, node: SimNode) -> None:
        with self.network.loop.on_behalf_of(None):
            self.network.loop.call_later(0.001 + self.random.random() * 0.1, self.start, node)

    def _kill_at_once_or_soon(self, node: SimNode, then: Callable[[], None]) -> None:
        """Kill a node now, before its data is sent, or within some milliseconds."""

        def kill() -> None:
            self.note(f"kill {node.host} at this moment")
            node.kill()
            then()

        with self.network.loop.on_behalf_of(None):
            if self.random.random() < 0.5:
                kill()
            else:
                self.network.loop.call_later(self.random.random() ** 2 * 0.004, kill)

    async def kill_writing(self) -> None:
        """Kill a node, or cut its power, between two writes."""
        node = self.one()
        if not node.alive:
            return
        died: asyncio.Future[SimNode] = self.network.loop.create_future()
        left = self.random.randint(1, 30)
        power = self.one_may_forget()

        def fault(operation: str, path: str) -> None:
            nonlocal left
            if operation in ("write", "fsync", "rename", "create"):
                left -= 1
            if left == 0 and not died.done():
                with self.network.loop.on_behalf_of(None):
                    self.note(f"{'power loss of' if power else 'kill'} {node.host} at {operation} {path}")
                    node.lose_power() if power else node.kill()
                    died.set_result(node)

        fs = node.fs
        fs.fault = fault
        await asyncio.wait([died], timeout=2)
        if not died.done():
            fs.fault = None
            return
        await self.for_a_while(3)
        self.start(node)
        if power:
            await self.caught_up()

    # -- network

    async def isolate(self) -> None:
        """Isolate a node from the other nodes; clients still reach it."""
        node = self.leader()
        one_way = self.random.random() < 0.3
        self._isolate(node, both=not one_way)
        await self.for_a_while(8)
        if self.random.random() < 0.3:
            self.note(f"kill {node.host}")
            node.kill()
            self.mend_links()
            await self.for_a_while(1)
            self.start(node)
        self.mend_links()

    def _isolate(self, node: SimNode, *, both: bool) -> None:
        self.note(f"isolate {node.host}{'' if both else ' one way'}")
        for other in self.nodes:
            if other is not node:
                self.network.cut(node.host, other.host, both=both)

    async def split_pair(self) -> None:
        first, second = self.random.sample(list(self.nodes), 2)
        self.note(f"cut {first.host}-{second.host}")
        self.network.cut(first.host, second.host, both=self.random.random() < 0.7)
        await self.for_a_while(7)
        self.mend_links()

    def mend_links(self) -> None:
        self.note("mend")
        for first in self.nodes:
            for second in self.nodes:
                self.network.link(first.host, second.host).cut = False

    async def slow_network(self) -> None:
        self.note("slow network")
        links = [self.network.link(a.host, b.host) for a in self.nodes for b in self.nodes if a is not b]
        for link in links:
            link.spike = self.random.random() * 0.3
        await self.for_a_while(4)
        for link in links:
            link.spike = 0.0

    async def break_connections(self) -> None:
        count = self.network.break_connections(self.random.random())
        self.note(f"break {count} connections")
        await self.for_a_while(1)

    # -- disks and clocks

    async def slow_disk(self) -> None:
        node = self.one()
        self.note(f"slow disk of {node.host}")
        node.slow_disk = self.random.random() * 2
        await self.for_a_while(4)
        node.slow_disk = 0.0

    async def full_disk(self) -> None:
        node = self.one()
        if node.alive:
            node.sick = True
            node.fs.space = self.random.randint(0, 4000)
            self.note(f"full disk of {node.host}: {node.fs.space} bytes left")
            await self.until_cured(node)

    async def broken_disk(self) -> None:
        node = self.one()
        if not node.alive:
            return
        node.sick = True
        operations = self.random.choice((("write",), ("fsync",), ("read",), ("write", "fsync", "rename")))
        share = self.random.choice((0.1, 1.0))

        def fault(operation: str, path: str) -> None:
            if operation in operations and self.random.random() < share:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)

        self.note(f"broken disk of {node.host}: {', '.join(operations)}")
        node.fs.fault = fault
        await self.until_cured(node)

    async def until_cured(self, node: SimNode) -> None:
        """Restart the node with a new disk after a while."""
        await self.for_a_while(3)
        self.note(f"new disk for {node.host}")
        node.kill()
        await self.for_a_while(1)
        self.start(node)

    async def wrong_clock(self) -> None:
        node = self.one()
        node.clock.skew_ms = self.random.randint(-20_000, 20_000)
        self.note(f"clock of {node.host} is wrong by {node.clock.skew_ms} ms")
        await self.for_a_while(4)

    # -- clients

    async def kill_client(self) -> None:
        self.note(f"kill {self._clients.kill_one(self.random)}")

    async def hold_client(self) -> None:
        """Pause a client: mostly longer than its session timeout, and shorter than its transaction timeout."""
        name, wake = self._clients.hold_one(self.random)
        self.note(f"hold {name}")
        await asyncio.sleep(2.5 + self.random.random() * 3)
        self.note(f"resume {name}")
        wake()

    async def replace_client(self) -> None:
        """Pause a client, start its successor, and resume it."""
        name, wake = self._clients.replace_one(self.random)
        self.note(f"hold {name}, and replace it")
        await self.for_a_while(6)
        self.note(f"resume {name}")
        wake()

    # -- orders

    async def reassign(self) -> None:
        await self._orders.reassign()
        await self.for_a_while(2)

    async def voters(self) -> None:
        await self._orders.change_voters()
        await self.for_a_while(2)

    async def replace(self) -> None:
        """Remove a node from the cluster, and add a new one in its place."""
        await self._orders.replace_node(self._in_sync, self.watch.wiped)


FAULTS: Final[dict[str, Fault]] = {
    "kill": Faults.kill,
    "kill-all": Faults.kill_all,
    "kill-acknowledging": Faults.kill_acknowledging,
    "kill-voting": Faults.kill_voting,
    "kill-writing": Faults.kill_writing,
    "power": Faults.lose_power,
    "stop": Faults.stop,
    "hold": Faults.hold,
    "isolate": Faults.isolate,
    "pair": Faults.split_pair,
    "slow-network": Faults.slow_network,
    "break": Faults.break_connections,
    "slow-disk": Faults.slow_disk,
    "full-disk": Faults.full_disk,
    "broken-disk": Faults.broken_disk,
    "clock": Faults.wrong_clock,
    "flip-bit": machine_faults.flip_bit,
    "stuck-disk": machine_faults.stuck_disk,
    "full-directory": machine_faults.full_directory,
    "descriptors": machine_faults.no_descriptors,
    "clock-jump": machine_faults.clock_jump,
    "clock-drift": machine_faults.clock_drift,
    "flap": machine_faults.flap,
    "hold-long": machine_faults.hold_long,
    "reassign": Faults.reassign,
    "voters": Faults.voters,
    "replace": Faults.replace,
    "kill-client": Faults.kill_client,
    "hold-client": Faults.hold_client,
    "replace-client": Faults.replace_client,
}

_FORGETFUL: Final = frozenset({"power", "kill-writing", "flip-bit"})
_DEADLY: Final = frozenset(
    {
        "kill",
        "kill-all",
        "kill-acknowledging",
        "kill-voting",
        "isolate",
        "full-disk",
        "broken-disk",
        "full-directory",
        "descriptors",
        "flap",
        "hold-long",
        *_FORGETFUL,
    }
)
