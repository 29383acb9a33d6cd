"""Faults of a machine: flipped bits, disks that hang or fill up, clocks that jump and drift, no descriptors left.

And of its surroundings: links that flap, and processes that are stopped for longer than every timeout.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.log.files import LEADER_EPOCH_FILE, LOG_SUFFIX, SNAPSHOT_SUFFIX
from ottla.records.batch import HEADER_SIZE, iter_batches

if TYPE_CHECKING:
    from ottla.testing.sim.faults import Faults
    from ottla.testing.sim.node import SimNode

_HOUR_MS: Final = 3_600_000
_UNDER_CHECKSUM: Final = 21
"""Where a batch's checksum begins: offset, length and leader epoch stand before it, as in Kafka."""
_METADATA: Final = "__cluster_metadata-0"
_INDEXES: Final = (".index", ".timeindex", ".txnindex")


async def flip_bit(faults: Faults) -> None:
    """Kill a node, flip a bit in one of its files, and start it; after a while its disk is repaired.

    What the damage makes it lose, the others have: see `lose_power`. The metadata log is left out. A voter that loses
    what it had synced breaks its promise to the quorum, in Kafka as here.
    """
    if not faults.one_may_forget():
        return
    node = faults.one()
    node.kill()
    path = _damage(faults, node)
    if path is None:
        faults.start(node)
        return
    faults.note(f"flipped bit of {node.host} in {path}")
    faults.start(node)
    await faults.for_a_while(4)
    node.kill()
    node.repair()
    faults.note(f"repaired disk of {node.host}")
    faults.start(node)
    await faults.caught_up()


def _damage(faults: Faults, node: SimNode) -> str | None:
    """Flip a bit; returns the path, or None if there is no file to damage."""
    by_kind: dict[str, list[str]] = {}
    for path in node.fs.files():
        kind = _kind(path)
        if kind is not None and node.fs.stat(path).size:
            by_kind.setdefault(kind, []).append(path)
    if not by_kind:
        return None
    path = faults.random.choice(by_kind[faults.random.choice(sorted(by_kind))])
    bit = _bit(faults, node, path)
    if bit is None:
        return None
    node.damage(path, bit)
    return path


def _kind(path: str) -> str | None:
    name = path.rpartition("/")[2]
    if name.endswith(LOG_SUFFIX):
        return None if _METADATA in path else "segment"
    if name.endswith(_INDEXES):
        return "index"
    if name.endswith(SNAPSHOT_SUFFIX):
        return "snapshot"
    if name == LEADER_EPOCH_FILE or name.endswith("-checkpoint"):
        return None if _METADATA in path else "checkpoint"
    return None


def _bit(faults: Faults, node: SimNode, path: str) -> int | None:
    data = node.fs.read_bytes(path)
    if not path.endswith(LOG_SUFFIX):
        return faults.random.randrange(len(data) * 8)
    batches = [
        (position + _UNDER_CHECKSUM, position + header.size_in_bytes)
        for position, header in iter_batches(data)
        if header.size_in_bytes >= HEADER_SIZE and position + header.size_in_bytes <= len(data)
    ]
    if not batches:
        return None
    first, end = faults.random.choice(batches)
    return faults.random.randrange(first * 8, end * 8)


async def stuck_disk(faults: Faults) -> None:
    """Let writes and syncs take longer than the timeouts of sessions and replicas."""
    node = faults.one()
    faults.note(f"stuck disk of {node.host}")
    node.slow_disk = 4 + faults.random.random() * 6
    await faults.for_a_while(8)
    node.slow_disk = 0.0


async def full_directory(faults: Faults) -> None:
    """Fill one log directory, or the directory of the metadata log; the others have space."""
    node = faults.one()
    if not node.alive:
        return
    directory = faults.random.choice(node.directories)
    node.sick = True
    node.fs.directory_space[directory] = faults.random.randint(0, 4000)
    faults.note(f"{directory} of {node.host} is full: {node.fs.directory_space[directory]} bytes left")
    await faults.until_cured(node)


async def no_descriptors(faults: Faults) -> None:
    """Let every open file and every new connection fail with EMFILE."""
    node = faults.one()
    if node.alive:
        node.sick = True
        node.fs.descriptors_left = faults.random.randint(0, 3)
        faults.note(f"{node.host} has {node.fs.descriptors_left} descriptors left")
        await faults.until_cured(node)


async def clock_jump(faults: Faults) -> None:
    """Set a node's clock wrong by hours, and right again after a while: two jumps."""
    node = faults.one()
    jump_ms = faults.random.choice((-1, 1)) * faults.random.randint(_HOUR_MS, 11 * _HOUR_MS)
    faults.note(f"clock of {node.host} jumps by {jump_ms} ms")
    node.clock.skew_ms += jump_ms
    await faults.for_a_while(5)
    faults.note(f"clock of {node.host} jumps back")
    node.clock.skew_ms -= jump_ms


async def clock_drift(faults: Faults) -> None:
    """Let a node's clock run too fast or too slow by up to a third."""
    node = faults.one()
    rate = faults.random.uniform(-0.3, 0.3)
    faults.note(f"clock of {node.host} drifts by {rate:.0%}")
    node.clock.drift(rate)
    await faults.for_a_while(6)
    node.clock.drift(0.0)


async def flap(faults: Faults) -> None:
    """Cut and mend the links of a node again and again, in one direction or both."""
    node = faults.leader()
    others = [other for other in faults.nodes if other is not node]
    both = faults.random.random() < 0.5
    faults.note(f"the links of {node.host} flap{'' if both else ' one way'}")
    end = faults.network.loop.time() + 1 + faults.random.random() * 6
    while faults.network.loop.time() < end:
        for other in others:
            if faults.random.random() < 0.7:
                faults.network.cut(node.host, other.host, both=both)
        await asyncio.sleep(0.02 + faults.random.random() ** 2 * 1.5)
        faults.mend_links()
        await asyncio.sleep(0.02 + faults.random.random() ** 2)


async def hold_long(faults: Faults) -> None:
    """Stop a process for longer than all timeouts of sessions, replicas and transactions, then let it go on."""
    node = faults.leader()
    faults.note(f"hold {node.host} for long")
    node.hold()
    await asyncio.sleep(8 + faults.random.random() * 4)
    faults.note(f"resume {node.host}")
    node.resume()
