"""`ottla get-offsets`: what kafka-get-offsets does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import click

from ottla.admin.errors import describe_error
from ottla.admin.partitions import Partition, leaders, list_offsets
from ottla.cli.tools.base import Flags, Session, not_with, tool
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.names import matcher
from ottla.errors import ApiException, ErrorCode
from ottla.wire.enums import OffsetSpec

_TIMES: Final = {spec.name.lower().replace("_", "-"): spec for spec in OffsetSpec}
_RULE: Final = re.compile(r"([^:,]*)(?::(?:(\d*)|(?:(\d*)-(\d*))))?")


class GetOffsetsFlags(Flags):
    """The flags of `ottla get-offsets`."""

    topic: str | None
    partitions: str | None
    topic_partitions: str | None
    time: str
    exclude_internal_topics: bool


@tool(
    "get-offsets",
    click.option("--topic", metavar="REGEX", help="The topics; all without it."),
    click.option("--partitions", metavar="N,N,...", help="Only these partitions."),
    click.option(
        "--topic-partitions",
        metavar="TOPIC:N,TOPIC:N-N,...",
        help="Topics with partitions: a number or a range.",
    ),
    click.option(
        "--time",
        default="latest",
        metavar="TIME",
        help=f"A timestamp in milliseconds, or one of {', '.join(_TIMES)}.",
    ),
    click.option("--exclude-internal-topics", is_flag=True, help="Leave Kafka's own topics out."),
)
def get_offsets(session: Session, flags: GetOffsetsFlags) -> None:
    """Show the first and last offsets of partitions, or their offsets at a time."""
    not_with(flags, "topic_partitions", "topic", "partitions")
    fits = _filter(flags)
    names = [
        topic.name or ""
        for topic in session.cluster.metadata().topics
        if not (flags.exclude_internal_topics and topic.is_internal)
    ]
    known = {each: leader for each, leader in leaders(session.cluster, names).items() if fits(each)}
    if not known:
        raise ApiException(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "Could not match any topic-partitions with the specified filters",
        )
    time = _time(flags.time)
    for topic, number in (each for each, leader in known.items() if leader < 0):
        session.warn(f"{topic}-{number} is left out: it has no leader")
    found = list_offsets(session.cluster, {each: time for each, leader in known.items() if leader >= 0})
    rows: list[tuple[str, int, int]] = []
    for (topic, number), each in sorted(found.items(), key=lambda item: f"{item[0][0]}-{item[0][1]}"):
        if each.error != ErrorCode.NONE:
            session.warn(f"{topic}-{number} is left out: {describe_error(each.error)}")
        elif each.offset >= 0:
            rows.append((topic, number, each.offset))
    documents = [dict(zip(("topic", "partition", "offset"), row, strict=True)) for row in rows]
    session.result(documents, [":".join(map(str, row)) for row in rows])


def _time(text: str) -> int:
    try:
        return _TIMES[text] if text in _TIMES else int(text)
    except ValueError:
        names = ", ".join(_TIMES)
        raise UsageProblem(f"--time {text}: expected a timestamp in milliseconds or one of {names}") from None


def _filter(flags: GetOffsetsFlags) -> Callable[[Partition], bool]:
    if flags.topic_partitions is not None:
        rules = [_rule(word) for word in flags.topic_partitions.split(",")]
        return lambda partition: any(rule(partition) for rule in rules)
    fits = matcher(flags.topic if flags.topic is not None else ".*")
    numbers: set[int] = set()
    for word in (flags.partitions or "").split(","):
        if word and not word.isdecimal():
            raise UsageProblem(f"--partitions {flags.partitions}: expected numbers of partitions")
        if word:
            numbers.add(int(word))
    return lambda partition: fits(partition[0]) and (not numbers or partition[1] in numbers)


def _rule(word: str) -> Callable[[Partition], bool]:
    found = _RULE.fullmatch(word)
    if found is None:
        raise UsageProblem(f"--topic-partitions: '{word}' is neither TOPIC nor TOPIC:N nor TOPIC:N-N")
    name, only, low, high = found.groups()
    fits = matcher(name or ".*")
    if only:
        return lambda partition: fits(partition[0]) and partition[1] == int(only)
    first, end = int(low or 0), int(high) if high else None
    return lambda partition: (
        fits(partition[0]) and first <= partition[1] and (end is None or partition[1] < end)
    )
