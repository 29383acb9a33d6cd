"""All clients of a run by name. The first letter of a name is its kind. Clients can be killed and paused, too."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from ottla.ids import GroupId, TopicName, TransactionalId
from ottla.log.types import TopicPartition
from ottla.testing.checks.history import Outcome
from ottla.testing.sim.classic import ClassicMember
from ottla.testing.sim.copiers import Copier
from ottla.testing.sim.history import History
from ottla.testing.sim.loop import SimLoop
from ottla.testing.sim.members import Member
from ottla.testing.sim.network import Address, Network
from ottla.testing.sim.process import Process
from ottla.testing.sim.producers import Producer, TransactionalProducer
from ottla.testing.sim.readers import Reader
from ottla.testing.sim.sharers import Sharer, read_from_the_beginning
from ottla.testing.sim.wire_client import WireClient


def _partition(topic: str, index: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), index)


PLAIN: Final = (_partition("plain", 0), _partition("plain", 1))
TRANSACTIONAL: Final = (_partition("txn", 0), _partition("txn", 1))
QUEUE: Final = (_partition("queue", 0),)
COPIES: Final = (_partition("copies", 0),)
"""Copies of everything committed in the transactional topic."""
EVERYTHING: Final = PLAIN + TRANSACTIONAL + QUEUE + COPIES

_GROUP: Final = GroupId("readers")
_CLASSIC_GROUP: Final = GroupId("classics")
COPY_GROUP: Final = GroupId("copiers")
_SHARE_GROUP: Final = GroupId("workers")
_KILLED_AND_HELD: Final = "tgscx"
"""Kinds that faults kill and pause. Killing a plain producer would only add records of unknown outcome."""


class Clients:
    """Starts, stops, kills and pauses the clients of a run."""

    def __init__(
        self,
        loop: SimLoop,
        network: Network,
        history: History,
        bootstrap: list[Address],
        draw: Callable[[], random.Random],
        pause_s: float,
    ) -> None:
        self._loop = loop
        self._network = network
        self._history = history
        self._bootstrap = bootstrap
        self._draw = draw
        self._pause_s = pause_s
        self._processes: dict[str, Process] = {}
        self._tasks: list[tuple[str, asyncio.Task[None]]] = []
        self._lives: dict[str, int] = {}

    def client(self, name: str) -> WireClient:
        """Create a client that does not belong to a simulated process."""
        return WireClient(self._loop, name, self._bootstrap, self._draw())

    def start(self, names: Sequence[str]) -> None:
        for name in names:
            self._start(name)

    def stop(self, kinds: str) -> None:
        """Stop all clients of these kinds."""
        for name, task in self._tasks:
            if name[0] in kinds:
                task.cancel()

    def _start(self, name: str) -> None:
        life = self._lives[name] = self._lives.get(name, 0) + 1
        process = self._processes[name] = Process(f"{name}.{life}", name)
        task = self._loop.spawn(process, self._work(name, f"{name}.{life}", life))
        self._tasks.append((name, task))

    def _work(self, name: str, incarnation: str, life: int) -> Coroutine[Any, Any, None]:
        client, history, pause_s = self.client(incarnation), self._history, self._pause_s
        match name[0]:
            case "p":
                return Producer(client, history, list(PLAIN), pause_s).run()
            case "q":
                return Producer(client, history, list(QUEUE), pause_s).run()
            case "t":
                return TransactionalProducer(
                    client, history, list(TRANSACTIONAL), pause_s, TransactionalId(name)
                ).run()
            case "g":
                return Member(client, history, _GROUP, PLAIN[0].topic, life, pause_s).run()
            case "c":
                return ClassicMember(client, history, _CLASSIC_GROUP, PLAIN, pause_s).run()
            case "x":
                return Copier(
                    client, history, COPY_GROUP, TRANSACTIONAL, COPIES[0], pause_s, TransactionalId(name)
                ).run()
            case "s":
                return Sharer(client, history, _SHARE_GROUP, QUEUE[0], pause_s).run()
            case "u":
                return Reader(client, history, list(EVERYTHING), pause_s, committed_only=False).run()
            case "r":
                return Reader(client, history, list(EVERYTHING), pause_s, committed_only=True).run()
        raise ValueError(f"there is no client {name}")

    async def prepare(self, names: Sequence[str]) -> None:
        """Write the settings that some clients need before they start."""
        if any(name[0] == "s" for name in names):
            await read_from_the_beginning(self.client("admin"), _SHARE_GROUP)

    # -- faults

    def _victim(self, rng: random.Random) -> str | None:
        names = [name for name in self._processes if name[0] in _KILLED_AND_HELD]
        return rng.choice(names) if names else None

    def kill_one(self, rng: random.Random) -> str:
        """Kill a client and start its successor."""
        name = self._victim(rng)
        if name is None:
            return "nobody"
        process = self._processes[name]
        process.die()
        self._network.died(process)
        self._start(name)
        return process.name

    def hold_one(self, rng: random.Random) -> tuple[str, Callable[[], None]]:
        """Pause a client without a successor. The second result resumes it."""
        name = self._victim(rng)
        return self._hold(name) if name is not None else ("nobody", lambda: None)

    def replace_one(self, rng: random.Random) -> tuple[str, Callable[[], None]]:
        """Pause a client and start its successor. The second result resumes it."""
        name = self._victim(rng)
        if name is None:
            return "nobody", lambda: None
        held = self._hold(name)
        self._start(name)
        return held

    def _hold(self, name: str) -> tuple[str, Callable[[], None]]:
        process = self._processes[name]
        process.hold()

        def wake() -> None:
            if process.alive:
                self._loop.resume(process)

        return process.name, wake

    # -- progress

    def progress(self, names: Sequence[str]) -> Callable[[], list[str]]:
        """Return a function that lists the clients without progress since: no acknowledgement, no commit."""
        history = self._history
        sends, transactions = len(history.sends), len(history.transactions)
        commits, deliveries = len(history.commits), len(history.deliveries)
        missing = set(names)

        def left() -> list[str]:
            new = [send for send in history.sends[sends:] if send.outcome is Outcome.OK]
            missing.difference_update(s.producer.split(".")[0] for s in new if s.transaction is None)
            missing.difference_update(
                t.producer for t in history.transactions[transactions:] if t.outcome is Outcome.OK
            )
            groups = {c.group for c in history.commits[commits:] if c.outcome is Outcome.OK}
            for kind, group in (("g", _GROUP), ("c", _CLASSIC_GROUP), ("x", COPY_GROUP)):
                if group in groups:
                    missing.difference_update([name for name in missing if name[0] == kind])
            if any(d.accepted is Outcome.OK for d in history.deliveries[deliveries:]):
                missing.difference_update([name for name in missing if name[0] == "s"])
            missing.difference_update([name for name in missing if name[0] in "ur"])
            return sorted(missing)

        return left

    def queue_is_empty(self) -> bool:
        """Return whether consumers have accepted all acknowledged records of the queue."""
        if not any(name[0] == "s" for name in self._processes):
            return True
        sent = {
            send.base_offset + index
            for send in self._history.sends
            if send.partition in QUEUE and send.outcome is Outcome.OK and send.base_offset >= 0
            for index in range(len(send.values))
        }
        return sent <= {d.offset for d in self._history.deliveries if d.accepted is not None}
