"""`ottla consumer-perf-test`: measures how fast records are read; the output is that of kafka-consumer-perf-test."""

from __future__ import annotations

import random
import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.tools import engine
from ottla.cli.tools.base import Flags, Session, exactly_one, not_with, tool
from ottla.cli.tools.values import now_ms

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

_MB: Final = 1024.0 * 1024.0
_AT_ONCE: Final = 2000
_POLL_S: Final = 0.1
_JAVA_DATE: Final = re.compile(r"y+|M+|d+|H+|m+|s+|S+|'[^']*'")
_STRFTIME: Final = {"y": "%Y", "M": "%m", "d": "%d", "H": "%H", "m": "%M", "s": "%S"}
_RATES: Final = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec,"
    " rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


class ConsumerPerfTestFlags(Flags):
    """The flags of `ottla consumer-perf-test`."""

    topic: str | None
    include: str | None
    num_records: int | None
    messages: int | None
    group: str | None
    from_latest: bool
    timeout: int
    fetch_size: int | None
    socket_buffer_size: int | None
    command_property: tuple[str, ...]
    consumer_config: str | None
    print_metrics: bool
    show_detailed_stats: bool
    reporting_interval: int
    date_format: str
    hide_header: bool


@tool(
    "consumer-perf-test",
    click.option("--topic", metavar="NAME", help="The topic to read."),
    click.option("--include", metavar="REGEX", help="Read all topics whose names fit."),
    click.option("--num-records", type=int, metavar="COUNT", help="How many records to read."),
    click.option("--messages", type=int, metavar="COUNT", help="Old for --num-records."),
    click.option("--group", metavar="NAME", help="The group to read as."),
    click.option("--from-latest", is_flag=True, help="Begin with what comes from now on."),
    click.option(
        "--timeout", type=int, default=10_000, metavar="MS", help="End when nothing comes for so long."
    ),
    click.option("--fetch-size", type=int, metavar="BYTES", help="Bytes per partition and fetch."),
    click.option("--socket-buffer-size", type=int, metavar="BYTES", help="The socket's receive buffer."),
    click.option("--command-property", multiple=True, metavar="KEY=VALUE", help="Consumer settings."),
    click.option("--consumer.config", "consumer_config", metavar="FILE", help="Old for --command-config."),
    click.option("--print-metrics", is_flag=True, help="Print librdkafka's statistics at the end."),
    click.option("--show-detailed-stats", is_flag=True, help="Report while it runs."),
    click.option(
        "--reporting-interval", type=int, default=5000, metavar="MS", help="Time between two reports."
    ),
    click.option(
        "--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", metavar="FORMAT", help="How times are shown."
    ),
    click.option("--hide-header", is_flag=True, help="Print no header."),
)
def consumer_perf_test(session: Session, flags: ConsumerPerfTestFlags) -> None:
    """Measure how fast topics are read."""
    exactly_one(flags, "topic", "include")
    exactly_one(flags, "num_records", "messages")
    not_with(flags, "num_records", "messages")
    engine.require_broker(session)
    metrics = engine.Metrics(wanted=flags.print_metrics)
    client = engine.consumer(engine.settings(session, _properties(flags)) | metrics.settings)
    if not flags.hide_header:
        session.print(
            ("time, threadId, " if flags.show_detailed_stats else "start.time, end.time, ") + _RATES
        )
    try:
        with engine.translated_errors():
            _Run(session, flags, client).read()
            metrics.wait(client)
    finally:
        client.close()
    metrics.show(session)


def _properties(flags: ConsumerPerfTestFlags) -> dict[str, str]:
    from ottla.cli.properties_file import read_client_properties

    properties = {
        "client.id": "perf-consumer-client",
        "group.id": flags.group or f"perf-consumer-{random.randrange(100_000)}",
        "auto.offset.reset": "latest" if flags.from_latest else "earliest",
        "check.crcs": "false",
    }
    if flags.consumer_config:
        properties |= read_client_properties(flags.consumer_config)
    properties |= engine.parse_properties(flags.command_property)
    if flags.fetch_size is not None:
        properties["max.partition.fetch.bytes"] = str(flags.fetch_size)
    if flags.socket_buffer_size is not None:
        properties["receive.buffer.bytes"] = str(flags.socket_buffer_size)
    return properties


def java_date(form: str, moment_ms: int) -> str:
    """A moment in the form of a Java date pattern."""
    moment = datetime.fromtimestamp(moment_ms / 1000)

    def part(found: re.Match[str]) -> str:
        word = found[0]
        if word.startswith("'"):
            return word[1:-1]
        if word[0] == "S":
            return str(moment_ms % 1000).zfill(len(word))
        text = moment.strftime(_STRFTIME[word[0]])
        return text[-2:] if word == "yy" else text

    return _JAVA_DATE.sub(part, form)


def timeout_warning(timeout_ms: int) -> str:
    """Kafka's warning about a run that ends before it has all records."""
    return (
        f"WARNING: Exiting before consuming the expected number of records: timeout ({timeout_ms} ms)"
        " exceeded. You can use the --timeout option to increase the timeout."
    )


class _Run:
    """One run: joins, reads and counts."""

    def __init__(self, session: Session, flags: ConsumerPerfTestFlags, client: Consumer) -> None:
        self._session = session
        self._flags = flags
        self._client = client
        self._wanted = flags.num_records or flags.messages or 0
        self._records = self._bytes = 0
        self._join_ms = self._round_join_ms = 0
        self._start_ms = self._join_start_ms = now_ms()
        self._assigned = False

    def read(self) -> None:
        flags = self._flags
        name = flags.topic if flags.topic is not None else f"^({flags.include})$"
        if flags.topic is not None:
            self._client.list_topics(flags.topic, timeout=engine.METADATA_TIMEOUT_S)
        self._client.subscribe([name], on_assign=self._on_assign, on_revoke=self._on_revoke)
        last = time.monotonic()
        reported = (now_ms(), 0, 0)
        while self._records < self._wanted and (time.monotonic() - last) * 1000 <= flags.timeout:
            count = min(_AT_ONCE, self._wanted - self._records)
            messages = engine.received(self._client.consume(count, _POLL_S))
            for message in messages:
                engine.check(message)
                self._bytes += len(message) + len(message.key() or b"")
            self._records += len(messages)
            if messages:
                last = time.monotonic()
                reported = self._maybe_report(reported)
        if self._records < self._wanted:
            self._session.print(timeout_warning(flags.timeout))
        self._report_total()

    def _on_assign(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        if not self._assigned:
            elapsed = now_ms() - self._join_start_ms
            self._join_ms += elapsed
            self._round_join_ms += elapsed
        self._assigned = True

    def _on_revoke(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        self._assigned = False
        self._join_start_ms = now_ms()

    def _maybe_report(self, reported: tuple[int, int, int]) -> tuple[int, int, int]:
        now, (since, records, size) = now_ms(), reported
        if now - since < self._flags.reporting_interval:
            return reported
        if self._flags.show_detailed_stats:
            mb, count, elapsed = (self._bytes - size) / _MB, self._records - records, now - since
            fetch_ms = elapsed - self._round_join_ms
            rates = (mb * 1000 / fetch_ms, count * 1000 / fetch_ms) if fetch_ms > 0 else (0.0, 0.0)
            self._session.print(
                f"{java_date(self._flags.date_format, now)}, 0, {self._bytes / _MB:.4f}, {mb * 1000 / elapsed:.4f},"
                f" {self._records}, {count * 1000 / elapsed:.4f}, {self._round_join_ms}, {fetch_ms},"
                f" {rates[0]:.4f}, {rates[1]:.4f}"
            )
        self._round_join_ms = 0
        return now, self._records, self._bytes

    def _report_total(self) -> None:
        end_ms = now_ms()
        elapsed = max(end_ms - self._start_ms, 1) / 1000
        fetch_ms = end_ms - self._start_ms - self._join_ms
        fetch = max(fetch_ms, 1) / 1000
        mb = self._bytes / _MB
        form = self._flags.date_format
        line = (
            f"{java_date(form, self._start_ms)}, {java_date(form, end_ms)}, {mb:.4f}, {mb / elapsed:.4f},"
            f" {self._records}, {self._records / elapsed:.4f}, {self._join_ms}, {fetch_ms},"
            f" {mb / fetch:.4f}, {self._records / fetch:.4f}"
        )
        document = {
            "startMs": self._start_ms,
            "endMs": end_ms,
            "mb": mb,
            "mbPerSec": mb / elapsed,
            "records": self._records,
            "recordsPerSec": self._records / elapsed,
            "rebalanceMs": self._join_ms,
            "fetchMs": fetch_ms,
            "fetchMbPerSec": mb / fetch,
            "fetchRecordsPerSec": self._records / fetch,
        }
        self._session.result(document, [] if self._flags.show_detailed_stats else [line])
