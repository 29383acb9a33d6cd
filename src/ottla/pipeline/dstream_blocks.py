"""The write-ahead log of receivers: blocks of records in files, and which runs of the receivers may add to them.

Each start of the receivers is a run with a number. A new run closes the earlier ones: a block that one of their tasks
still writes, on an executor that outlived its driver, does not count, and the new run reads its records again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from ottla.pipeline.shared_files import SharedFiles

_RUN: Final = "run"
_STOP: Final = "stop"


class Block(msgspec.Struct, frozen=True):
    """The content of a block: records of one topic, and where each partition of the receiver continues."""

    topic: str
    next: dict[int, int]
    records: list[tuple[bytes | None, bytes | None]]


class BlockName(NamedTuple):
    """A receiver's block: its place among the receiver's blocks, and the run that wrote it."""

    receiver: str
    number: int
    run: int

    def __str__(self) -> str:
        return f"{self.receiver}-{self.number:012}-{self.run:06}"


class _Run(msgspec.Struct, frozen=True):
    """The content of a run's file: the last block of each receiver that counts, by earlier run."""

    number: int
    closed: dict[int, dict[str, int]]

    def counts(self, block: BlockName) -> bool:
        if block.run == self.number:
            return True
        return block.number <= self.closed.get(block.run, {}).get(block.receiver, -1)


class BlockLog:
    """The blocks in one directory. Only one driver may open runs in it."""

    def __init__(self, directory: str) -> None:
        self.files = SharedFiles(directory)

    def open_run(self) -> int:
        """Close the earlier runs and return the number of the new one."""
        before = self._newest_run()
        blocks = self.blocks()
        closed: dict[int, dict[str, int]] = {}
        for block in blocks:
            last = closed.setdefault(block.run, {})
            last[block.receiver] = max(last.get(block.receiver, -1), block.number)
        number = 1 if before is None else before.number + 1
        self.files.write(f"{_RUN}-{number:06}", msgspec.msgpack.encode(_Run(number, closed)))
        if before is not None:
            self.stop(before.number)
            self._clean_up(before, {str(block) for block in blocks})
        return number

    def _clean_up(self, before: _Run, counting: set[str]) -> None:
        """Delete what no later run needs: blocks that did not count, and the notes of runs before the last one."""
        for name in self.files.names():
            kind, _, number = name.partition("-")
            block = _parse(name)
            if block is None:
                unneeded = kind in (_RUN, _STOP) and int(number) < before.number
            else:
                unneeded = block.run <= before.number and name not in counting
            if unneeded:
                self.files.delete(name)

    def _newest_run(self) -> _Run | None:
        names = [name for name in self.files.names() if name.startswith(f"{_RUN}-")]
        data = self.files.read(names[-1]) if names else None
        return None if data is None else msgspec.msgpack.decode(data, type=_Run)

    def blocks(self) -> list[BlockName]:
        """The blocks that count, in order."""
        run = self._newest_run()
        if run is None:
            return []
        found = (_parse(name) for name in self.files.names())
        return [block for block in found if block is not None and run.counts(block)]

    def write(self, name: BlockName, block: Block) -> None:
        """Store a block: it is on disk when this returns."""
        self.files.write(str(name), msgspec.msgpack.encode(block))

    def read(self, name: str) -> Block | None:
        """A block; None if it was deleted."""
        data = self.files.read(name)
        return None if data is None else msgspec.msgpack.decode(data, type=Block)

    def ends(self, topic: str) -> dict[int, int]:
        """Where partitions of a topic continue after the blocks that count."""
        ends: dict[int, int] = {}
        for name in self.blocks():
            block = self.read(str(name))
            if block is not None and block.topic == topic:
                for partition, end in block.next.items():
                    ends[partition] = max(ends.get(partition, -1), end)
        return ends

    def next_number(self, receiver: str) -> int:
        """The number of a receiver's next block."""
        return 1 + max((block.number for block in self.blocks() if block.receiver == receiver), default=-1)

    def stop(self, run: int) -> None:
        """Let the receivers of a run end by themselves."""
        self.files.write(f"{_STOP}-{run:06}", b"")

    def is_stopped(self, run: int) -> bool:
        """Whether the receivers of a run are to end: someone stopped it, or a newer run has begun."""
        names = self.files.names()
        return f"{_STOP}-{run:06}" in names or f"{_RUN}-{run:06}" not in names


def _parse(name: str) -> BlockName | None:
    parts = name.split("-")
    if len(parts) != 3 or not (parts[1].isdigit() and parts[2].isdigit()):
        return None
    return BlockName(parts[0], int(parts[1]), int(parts[2]))
