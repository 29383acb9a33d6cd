"""What is done to the cluster while the clients work: drawn from the seed, each for a while, then undone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from ottla.testing.sim.network import Network
from ottla.testing.sim.node import SimNode

Fault = Callable[["Faults"], Coroutine[Any, Any, None]]


class Faults:
    """Runs one fault after the other, sometimes two at once."""

    def __init__(
        self, nodes: Sequence[SimNode], network: Network, rng: random.Random, note: Callable[[str], None]
    ) -> None:
        self.nodes = nodes
        self.network = network
        self.random = rng
        self.note = note
        self.fragile = False
        """A node has lost what it had not synced: until all are in sync again no other one may."""

    async def run(self, seconds: float, kinds: Sequence[str]) -> None:
        """Faults of these kinds for so long; ends with everything healed."""
        end = self.network.loop.time() + seconds
        while self.network.loop.time() < end:
            chosen = self.random.sample(sorted(kinds), min(len(kinds), 1 + (self.random.random() < 0.3)))
            await asyncio.gather(*(FAULTS[kind](self) for kind in chosen))
            await asyncio.sleep(self.random.random() * 1.5)
        self.heal()

    def heal(self) -> None:
        """Undo everything; dead nodes are started."""
        self.note("heal")
        self.network.heal()
        for node in self.nodes:
            node.slow_disk = 0.0
            node.resume()
            if not node.alive:
                node.start()

    def _one(self) -> SimNode:
        return self.random.choice(self.nodes)

    async def _for_a_while(self, longest_s: float) -> None:
        await asyncio.sleep(0.05 + self.random.random() ** 2 * longest_s)

    async def kill(self) -> None:
        node = self._one()
        if node.alive:
            self.note(f"kill {node.host}")
            node.kill()
            await self._for_a_while(12)
            self._start(node)

    async def kill_all(self) -> None:
        self.note("kill all")
        for node in self.nodes:
            node.kill()
        await self._for_a_while(3)
        for node in self.nodes:
            self._start(node)

    def _start(self, node: SimNode) -> None:
        if not node.alive:
            self.note(f"start {node.host}")
            node.start()

    async def lose_power(self) -> None:
        if self.fragile or not all(node.alive for node in self.nodes):
            return
        self.fragile = True
        node = self._one()
        self.note(f"power loss of {node.host}")
        node.lose_power()
        await self._for_a_while(5)
        self._start(node)

    async def stop(self) -> None:
        node = self._one()
        task = node.stop()
        if task is None:
            return
        self.note(f"stop {node.host}")
        await asyncio.wait([task], timeout=20)
        await self._for_a_while(3)
        self._start(node)

    async def hold(self) -> None:
        node = self._one()
        self.note(f"hold {node.host}")
        node.hold()
        await self._for_a_while(15)
        self.note(f"resume {node.host}")
        node.resume()

    async def isolate(self) -> None:
        node = self._one()
        one_way = self.random.random() < 0.3
        self.note(f"isolate {node.host}{' one way' if one_way else ''}")
        for other in self.nodes:
            if other is not node:
                self.network.cut(node.host, other.host, both=not one_way)
        await self._for_a_while(15)
        self._mend()

    async def split_pair(self) -> None:
        first, second = self.random.sample(list(self.nodes), 2)
        self.note(f"cut {first.host}-{second.host}")
        self.network.cut(first.host, second.host, both=self.random.random() < 0.7)
        await self._for_a_while(15)
        self._mend()

    def _mend(self) -> None:
        self.note("mend")
        for first in self.nodes:
            for second in self.nodes:
                self.network.link(first.host, second.host).cut = False

    async def slow_network(self) -> None:
        self.note("slow network")
        links = [self.network.link(a.host, b.host) for a in self.nodes for b in self.nodes if a is not b]
        for link in links:
            link.spike = self.random.random() * 0.3
        await self._for_a_while(8)
        for link in links:
            link.spike = 0.0

    async def break_connections(self) -> None:
        count = self.network.break_connections(self.random.random())
        self.note(f"break {count} connections")
        await self._for_a_while(1)

    async def slow_disk(self) -> None:
        node = self._one()
        self.note(f"slow disk of {node.host}")
        node.slow_disk = self.random.random() * 3
        await self._for_a_while(8)
        node.slow_disk = 0.0


FAULTS: Final[dict[str, Fault]] = {
    "kill": Faults.kill,
    "kill-all": Faults.kill_all,
    "power": Faults.lose_power,
    "stop": Faults.stop,
    "hold": Faults.hold,
    "isolate": Faults.isolate,
    "pair": Faults.split_pair,
    "slow-network": Faults.slow_network,
    "break": Faults.break_connections,
    "slow-disk": Faults.slow_disk,
}
