"""`ottla delete-records`: what kafka-delete-records does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.admin import partitions
from ottla.admin.errors import describe_error
from ottla.admin.partitions import Partition
from ottla.cli.tools.base import Flags, Session, require, tool
from ottla.cli.tools.failures import UsageProblem
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster


class DeleteRecordsFlags(Flags):
    """The flags of `ottla delete-records`."""

    offset_json_file: str


@tool(
    "delete-records",
    click.option(
        "--offset-json-file",
        metavar="FILE",
        help='{"partitions": [{"topic": "orders", "partition": 0, "offset": 100}], "version": 1}',
    ),
)
def delete_records(session: Session, flags: DeleteRecordsFlags) -> None:
    """Delete the records of partitions before an offset."""
    require(flags, "offset_json_file")
    wanted = _read(flags.offset_json_file)
    session.print("Executing records delete operation")
    results = _delete(session.cluster, wanted)
    session.print("Records delete operation completed:")
    for (topic, number), (mark, code) in results.items():
        result = f"low_watermark: {mark}" if code == ErrorCode.NONE else f"error: {describe_error(code)}"
        session.print(f"partition: {topic}-{number}\t{result}")
    if session.as_json:
        session.dump(
            [
                {
                    "topic": topic,
                    "partition": number,
                    "low_watermark": mark,
                    "error": code.name if code else None,
                }
                for (topic, number), (mark, code) in results.items()
            ]
        )
    if any(code != ErrorCode.NONE for _, code in results.values()):
        session.exit_code = 1


def _read(file: str) -> dict[Partition, int]:
    try:
        document = json.loads(Path(file).read_text(encoding="utf-8"))
        entries = [
            (each["topic"], int(each["partition"]), int(each["offset"])) for each in document["partitions"]
        ]
        version = document.get("version", 1)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageProblem(f"{file}: expected JSON with partitions, see --help ({error!r})") from None
    if version != 1:
        raise UsageProblem(f"{file}: version {version} is unknown, there is only 1")
    wanted = {(topic, number): offset for topic, number, offset in entries}
    if len(wanted) != len(entries):
        raise UsageProblem(f"{file}: a partition is named twice")
    return wanted


def _delete(cluster: Cluster, wanted: dict[Partition, int]) -> dict[Partition, tuple[int, ErrorCode]]:
    found: dict[Partition, tuple[int, ErrorCode]] = {}
    for response in partitions.delete_records(cluster, wanted):
        for topic in response.topics:
            for each in topic.partitions:
                code = ErrorCode.of(each.error_code)
                found[topic.name, each.partition_index] = each.low_watermark, code
    return dict(sorted(found.items()))
