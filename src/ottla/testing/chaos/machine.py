"""Faults of a machine under a real node: flipped bits, no descriptors, little memory; and another version of Ottla."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.records.batch import HEADER_SIZE, iter_batches

if TYPE_CHECKING:
    import random

    from ottla.testing.chaos.faults import Scene

_UNDER_CHECKSUM: Final = 21
"""Where a batch's checksum begins: offset, length and leader epoch stand before it, as in Kafka."""
_METADATA: Final = "__cluster_metadata-0"
_SPARE_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged byte of a file."""

    path: Path
    at: int
    original: int
    damaged: int


def damage(data: Path, rng: random.Random) -> Damage | None:
    """Flip a bit below a data directory: a segment, an index, a snapshot or a checkpoint, but not the metadata log.

    Returns None if there is nothing to damage.
    """
    by_kind: dict[str, list[Path]] = {}
    for path in sorted(data.rglob("*")):
        if _METADATA not in path.parts and path.is_file() and path.stat().st_size:
            kind = path.suffix or path.name
            if kind in (".log", ".index", ".timeindex", ".txnindex", ".snapshot") or kind.endswith(
                "checkpoint"
            ):
                by_kind.setdefault(kind, []).append(path)
    if not by_kind:
        return None
    path = rng.choice(by_kind[rng.choice(sorted(by_kind))])
    content = bytearray(path.read_bytes())
    places = range(len(content))
    if path.suffix == ".log":
        batches = [
            range(position + _UNDER_CHECKSUM, position + header.size_in_bytes)
            for position, header in iter_batches(content)
            if header.size_in_bytes >= HEADER_SIZE and position + header.size_in_bytes <= len(content)
        ]
        if not batches:
            return None
        places = rng.choice(batches)
    at = rng.choice(places)
    found = Damage(path, at, content[at], content[at] ^ 1 << rng.randrange(8))
    _write(path, at, found.damaged)
    return found


def repair(damage: Damage) -> None:
    """Restore the byte, unless recovery has removed or replaced it."""
    if damage.path.exists():
        content = damage.path.read_bytes()
        if len(content) > damage.at and content[damage.at] == damage.damaged:
            _write(damage.path, damage.at, damage.original)


def _write(path: Path, at: int, value: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([value]))


def limit_descriptors(pid: int) -> tuple[int, int]:
    """Let a process open nothing more; returns the limits that it had."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), before[1]))
    return before


def limit_memory(pid: int) -> tuple[int, int]:
    """Leave a process little memory beyond what it has; returns the limits that it had."""
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + _SPARE_BYTES
    resource.prlimit(pid, resource.RLIMIT_AS, (size, before[1]))
    return before


def use_source(scene: Scene, node_id: int, source: Path | None) -> None:
    """Let the next start of a node run another source tree; None for this one."""
    environment = scene.cluster.nodes[node_id].environment
    if source is None:
        environment.pop("PYTHONPATH", None)
        scene.old_nodes.discard(node_id)
    else:
        environment["PYTHONPATH"] = str(source)
        scene.old_nodes.add(node_id)
