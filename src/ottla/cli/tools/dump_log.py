"""`ottla dump-log`: what kafka-dump-log does. It reads files and asks no broker."""

from __future__ import annotations

import mmap
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from ottla.cli.tools import decoders
from ottla.cli.tools.base import Flags, Session, require, tool
from ottla.cli.tools.dump_index import dump_index, dump_producers, dump_time_index, dump_transactions
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.message_json import as_document, as_text
from ottla.cli.tools.remote_log_metadata import of_remote_log_metadata
from ottla.records.batch import BatchHeader, check_crc, iter_batches, iter_records
from ottla.records.control import ControlType, decode_control
from ottla.records.record import Record
from ottla.wire.messages import EndTxnMarker

_TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
_CHECKPOINT: Final = re.compile(r"(\d+)-(\d+)\.checkpoint(?:\.deleted)?")
_CONTROL_TITLES: Final = {
    ControlType.LEADER_CHANGE: "LeaderChange:",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlType.KRAFT_VERSION: "KRaftVersion",
    ControlType.KRAFT_VOTERS: "KRaftVoters",
}


class DumpLogFlags(Flags):
    """The flags of `ottla dump-log`."""

    files: str
    print_data_log: bool
    deep_iteration: bool
    skip_record_metadata: bool
    max_bytes: int | None
    verify_index_only: bool
    index_sanity_check: bool
    max_message_size: int | None
    key_decoder_class: str | None
    value_decoder_class: str | None
    offsets_decoder: bool
    transaction_log_decoder: bool
    share_group_state_decoder: bool
    cluster_metadata_decoder: bool
    remote_log_metadata_decoder: bool


@tool(
    "dump-log",
    click.option("--files", metavar="FILE,...", help="The files: .log, .index, .timeindex, .snapshot, ..."),
    click.option("--print-data-log", is_flag=True, help="Print the records, too."),
    click.option("--deep-iteration", is_flag=True, help="Print what is known of each record."),
    click.option("--skip-record-metadata", is_flag=True, help="Print only keys and values of records."),
    click.option("--max-bytes", type=int, metavar="BYTES", help="Read no more than this of a log."),
    click.option("--verify-index-only", is_flag=True, help="Check indexes, and print only mismatches."),
    click.option("--index-sanity-check", is_flag=True, help="Check indexes as a broker does at its start."),
    click.option("--max-message-size", type=int, metavar="BYTES", hidden=True),
    click.option("--key-decoder-class", is_flag=False, flag_value="", metavar="[CLASS]", help="For keys."),
    click.option(
        "--value-decoder-class", is_flag=False, flag_value="", metavar="[CLASS]", help="For values."
    ),
    click.option("--offsets-decoder", is_flag=True, help="The records are those of __consumer_offsets."),
    click.option("--transaction-log-decoder", is_flag=True, help="... of __transaction_state."),
    click.option("--share-group-state-decoder", is_flag=True, help="... of __share_group_state."),
    click.option("--cluster-metadata-decoder", is_flag=True, help="... of __cluster_metadata."),
    click.option("--remote-log-metadata-decoder", is_flag=True, help="... of __remote_log_metadata."),
    offline=True,
)
def dump_log(session: Session, flags: DumpLogFlags) -> None:
    """Print what is in the files of a log."""
    require(flags, "files")
    decoder = _decoder(flags)
    for word in flags.files.split(","):
        path = Path(word)
        session.print(f"Dumping {word}")
        if path.suffix in (".log", ".checkpoint"):
            _dump_log(session, flags, path, decoder)
        elif path.suffix == ".index":
            dump_index(session, path, flags.index_sanity_check, flags.verify_index_only)
        elif path.suffix == ".timeindex":
            dump_time_index(session, path, flags.index_sanity_check, flags.verify_index_only)
        elif path.suffix == ".snapshot":
            dump_producers(session, path)
        elif path.suffix == ".txnindex":
            dump_transactions(session, path)
        else:
            session.warn(f"Ignoring unknown file {word}")


def _decoder(flags: DumpLogFlags) -> decoders.Decoder | None:
    """The decoder of records; None to print their metadata only. Of several, the first in Kafka's order counts."""
    if flags.offsets_decoder:
        return decoders.of_coordinator("kafka-group-coordinator")
    if flags.transaction_log_decoder:
        return decoders.of_coordinator("kafka-transaction-coordinator")
    if flags.cluster_metadata_decoder:
        return decoders.of_cluster_metadata
    if flags.remote_log_metadata_decoder:
        return of_remote_log_metadata
    if flags.share_group_state_decoder:
        return decoders.of_coordinator("kafka-share-coordinator")
    classes = flags.key_decoder_class, flags.value_decoder_class
    if flags.print_data_log or classes != (None, None):
        return decoders.of_classes(*classes)
    return None


@contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    """The bytes of a file, read as they are looked at."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            yield memoryview(b"")
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
            yield view


def _dump_log(session: Session, flags: DumpLogFlags, path: Path, decoder: decoders.Decoder | None) -> None:
    session.print(_title(path))
    deep = flags.deep_iteration or decoder is not None
    write = sys.stdout.write
    with _mapped(path) as data:
        end = len(data) if flags.max_bytes is None else min(len(data), flags.max_bytes)
        valid = 0
        previous: int | None = None
        for position, header in iter_batches(data, 0, end):
            is_valid = check_crc(data, position, header)
            if session.as_json:
                session.dump(_batch_document(position, header, is_valid))
            else:
                write(_batch_line(position, header, is_valid))
            for record in iter_records(data, position, header) if deep else ():
                if previous is not None and record.offset != previous + 1:
                    session.warn(
                        f"Non-consecutive offsets in {path}: {previous} is followed by {record.offset}"
                    )
                previous = record.offset
                if session.as_json:
                    session.dump(_record_document(header, record, decoder))
                else:
                    write(_record_line(header, record, decoder, flags.skip_record_metadata))
            valid = position + header.size_in_bytes
        if valid < len(data) and flags.max_bytes is None:
            session.print(f"Found {len(data) - valid} invalid bytes at the end of {path.name}")


def _title(path: Path) -> str:
    if path.suffix == ".log":
        stem = path.name.partition(".")[0]
        if not stem.isdecimal():
            raise UsageProblem(f"{path}: the name of a log begins with its first offset")
        return f"Log starting offset: {int(stem)}"
    if path.name == "bootstrap.checkpoint":
        return "KRaft bootstrap snapshot"
    found = _CHECKPOINT.fullmatch(path.name)
    if found is None:
        raise UsageProblem(f"{path}: the name of a snapshot is OFFSET-EPOCH.checkpoint")
    return f"Snapshot end offset: {int(found[1])}, epoch: {int(found[2])}"


def _batch_document(position: int, header: BatchHeader, is_valid: bool) -> dict[str, object]:
    horizon = header.delete_horizon_ms
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": horizon,
        "position": position,
        _TIMESTAMP_TYPES[header.timestamp_type]: header.max_timestamp,
        "size": header.size_in_bytes,
        "magic": header.magic,
        "compresscodec": header.compression.name.lower(),
        "crc": header.crc,
        "isvalid": is_valid,
    }


def _batch_line(position: int, header: BatchHeader, is_valid: bool) -> str:
    document = _batch_document(position, header, is_valid)
    horizon = header.delete_horizon_ms
    document["deleteHorizonMs"] = "OptionalLong.empty" if horizon is None else f"OptionalLong[{horizon}]"
    return " ".join(f"{name}: {_java(value)}" for name, value in document.items()) + "\n"


def _java(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sequence(header: BatchHeader, record: Record) -> int:
    if header.base_sequence < 0:
        return header.base_sequence
    return (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF


def _record_line(
    header: BatchHeader, record: Record, decoder: decoders.Decoder | None, skip_metadata: bool
) -> str:
    words: list[str] = ["|"]
    if not skip_metadata:
        key_size = -1 if record.key is None else len(record.key)
        value_size = -1 if record.value is None else len(record.value)
        words.append(
            f"offset: {record.offset} {_TIMESTAMP_TYPES[header.timestamp_type]}: {record.timestamp}"
            f" keySize: {key_size} valueSize: {value_size} sequence: {_sequence(header, record)}"
            f" headerKeys: [{','.join(name for name, _ in record.headers)}]"
        )
        if header.is_control:
            words.append(_control_text(record))
    if decoder is not None and not header.is_control:
        key, value = decoder(record)
        words += [f"key: {key}"] if key is not None else []
        words += [f"payload: {value}"] if value is not None else []
    return (" ".join(words) if len(words) > 1 else "") + "\n"


def _control_text(record: Record) -> str:
    kind, message = decode_control(record)
    if isinstance(message, EndTxnMarker):
        return f"endTxnMarker: {kind.name} coordinatorEpoch: {message.coordinator_epoch}"
    if message is not None and kind in _CONTROL_TITLES:
        return f"{_CONTROL_TITLES[kind]} {as_text(as_document(message, getattr(message, 'version', 0)))}"
    return f"controlType: {kind.name}({kind.value})"


def _record_document(
    header: BatchHeader, record: Record, decoder: decoders.Decoder | None
) -> dict[str, object]:
    document: dict[str, object] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "sequence": _sequence(header, record),
        "headerKeys": [name for name, _ in record.headers],
    }
    if header.is_control:
        document["control"] = _control_text(record)
    elif decoder is not None:
        document["key"], document["payload"] = decoder(record)
    return document
