"""The small files beside a log as kafka-dump-log shows them: indexes, producers, aborted transactions.

They are read as plain bytes: the broker's own classes for them repair what they open.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from pathlib import Path
from typing import Final

from ottla.cli.tools.base import Session
from ottla.cli.tools.failures import UsageProblem
from ottla.log.producer_snapshot import CorruptSnapshotError, decode_snapshot
from ottla.records.batch import HEADER_SIZE, iter_batches, iter_records, read_header

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TRANSACTION_ENTRY: Final = struct.Struct(">hqqqq")


def _base_offset(path: Path) -> int:
    stem = path.name.partition(".")[0]
    if not stem.isdecimal():
        raise UsageProblem(f"{path}: the name of an index begins with its first offset")
    return int(stem)


def _entries(path: Path, form: struct.Struct) -> list[tuple[int, ...]]:
    data = path.read_bytes()
    whole = len(data) - len(data) % form.size
    return list(form.iter_unpack(data[:whole]))


def _offsets(path: Path) -> list[tuple[int, int]]:
    """Offset and position of each entry, up to the zeros behind the last."""
    base = _base_offset(path)
    found: list[tuple[int, int]] = []
    for number, (relative, position) in enumerate(_entries(path, _OFFSET_ENTRY)):
        if relative == 0 and number > 0:
            break
        found.append((base + relative, position))
    return found


def _log_of(path: Path) -> bytes:
    return path.with_name(path.name.partition(".")[0] + ".log").read_bytes()


def dump_index(session: Session, path: Path, sanity_only: bool, verify_only: bool) -> None:
    """Offsets and the positions of their batches; a missing batch is reported on standard error."""
    log = _log_of(path)
    if path.stat().st_size < _OFFSET_ENTRY.size:
        session.print(f"{path} is empty.")
        return
    if sanity_only:
        _check_sanity(path, _OFFSET_ENTRY, [relative for relative, _ in _entries(path, _OFFSET_ENTRY)])
        session.print(f"{path} passed sanity check.")
        return
    for offset, position in _offsets(path):
        last = read_header(log, position).last_offset if position + HEADER_SIZE <= len(log) else None
        if last != offset:
            session.warn(f"Mismatches in :{path.absolute()}\n  Index offset: {offset}, log offset: {last}")
        if not verify_only:
            session.result(
                {"offset": offset, "position": position}, [f"offset: {offset} position: {position}"]
            )


def _check_sanity(path: Path, form: struct.Struct, relatives: list[int]) -> None:
    if path.stat().st_size % form.size:
        raise UsageProblem(f"{path} is corrupt: its size is no multiple of {form.size}")
    if relatives and relatives[-1] < 0:
        raise UsageProblem(f"{path} is corrupt: its last offset lies before its first")


def dump_time_index(session: Session, path: Path, sanity_only: bool, verify_only: bool) -> None:
    """Timestamps and the offsets they belong to; differences from the log are reported on standard error."""
    base = _base_offset(path)
    entries = _entries(path, _TIME_ENTRY)
    if sanity_only:
        _check_sanity(path, _TIME_ENTRY, [relative for _, relative in entries])
        if entries and entries[-1][0] < entries[0][0]:
            raise UsageProblem(f"{path} is corrupt: its last timestamp lies before its first")
        session.print(f"{path} passed sanity check.")
        return
    log, offsets = _log_of(path), _offsets(path.with_suffix(".index"))
    previous = -1
    for number, (timestamp, relative) in enumerate(entries):
        if relative == 0 and number > 0:
            return
        offset = base + relative
        problem = _time_problem(log, offsets, offset, timestamp, previous)
        if problem is not None:
            session.warn(f"{path.absolute()}: {problem}")
        if not verify_only:
            document = {"timestamp": timestamp, "offset": offset}
            session.result(document, [f"timestamp: {timestamp} offset: {offset}"])
        previous = timestamp


def _time_problem(
    log: bytes, offsets: list[tuple[int, int]], offset: int, timestamp: int, previous: int
) -> str | None:
    place = bisect_right(offsets, offset, key=lambda entry: entry[0]) - 1
    start = offsets[place][1] if place >= 0 else 0
    for position, header in iter_batches(log, start):
        if header.last_offset < offset:
            continue
        if header.last_offset > offset:
            return f"indexed offset {offset} is not the end of a batch, {header.last_offset} is"
        latest = max((record.timestamp for record in iter_records(log, position, header)), default=-1)
        if latest != timestamp:
            return f"index timestamp {timestamp}, log timestamp {latest}"
        return f"timestamp {timestamp} follows {previous}" if previous >= timestamp else None
    return f"indexed offset {offset} is not in the log"


def dump_producers(session: Session, path: Path) -> None:
    """The producers of a snapshot, each with its last batch."""
    try:
        producers = decode_snapshot(path.read_bytes())
    except CorruptSnapshotError as error:
        session.error(f"{path}: {error}")
        return
    for each in producers:
        first = each.current_txn_first_offset
        values: dict[str, object] = {
            "producerId": each.producer_id,
            "producerEpoch": each.epoch,
            "coordinatorEpoch": each.coordinator_epoch,
            "currentTxnFirstOffset": None if first < 0 else first,
            "lastTimestamp": each.last_timestamp,
        }
        for batch in each.batches[:1]:
            values |= {
                "firstSequence": batch.first_sequence,
                "lastSequence": batch.last_sequence,
                "lastOffset": batch.last_offset,
                "offsetDelta": batch.offset_delta,
                "timestamp": batch.timestamp,
            }
        shown = values | {
            "currentTxnFirstOffset": "OptionalLong.empty" if first < 0 else f"OptionalLong[{first}]"
        }
        session.result(values, [" ".join(f"{name}: {value}" for name, value in shown.items())])


def dump_transactions(session: Session, path: Path) -> None:
    """The aborted transactions of a segment."""
    names = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
    for entry in _entries(path, _TRANSACTION_ENTRY):
        values = dict(zip(names, entry, strict=True))
        session.result(values, [" ".join(f"{name}: {value}" for name, value in values.items())])
