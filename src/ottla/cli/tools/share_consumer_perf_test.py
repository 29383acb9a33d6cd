"""`ottla share-consumer-perf-test`: measures how fast a share group reads, with the output of Kafka's tool."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.tools import engine
from ottla.cli.tools.base import Flags, Session, exactly_one, require, tool
from ottla.cli.tools.consumer_perf_test import java_date, timeout_warning
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.values import now_ms
from ottla.errors import ApiException

if TYPE_CHECKING:
    from confluent_kafka import ShareConsumer

_MB: Final = 1024.0 * 1024.0
_POLL_S: Final = 0.1
_TITLES: Final = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"
)


class ShareConsumerPerfTestFlags(Flags):
    """The flags of `ottla share-consumer-perf-test`."""

    topic: str
    num_records: int | None
    messages: int | None
    group: str
    threads: int
    timeout: int
    fetch_size: int
    socket_buffer_size: int
    command_property: tuple[str, ...]
    print_metrics: bool
    show_detailed_stats: bool
    show_consumer_stats: bool
    reporting_interval: int
    date_format: str
    hide_header: bool


@tool(
    "share-consumer-perf-test",
    click.option("--topic", metavar="NAME", help="The topic to read."),
    click.option("--num-records", type=int, metavar="COUNT", help="How many records to read."),
    click.option("--messages", type=int, metavar="COUNT", help="Old for --num-records."),
    click.option("--group", default="perf-share-consumer", metavar="NAME", help="The group to read as."),
    click.option(
        "--threads", type=int, default=1, metavar="COUNT", help="How many consumers share the work."
    ),
    click.option(
        "--timeout", type=int, default=10_000, metavar="MS", help="End when nothing comes for so long."
    ),
    click.option("--fetch-size", type=int, default=1 << 20, metavar="BYTES", help="Bytes per fetch."),
    click.option(
        "--socket-buffer-size",
        type=int,
        default=2 << 20,
        metavar="BYTES",
        help="The socket's receive buffer.",
    ),
    click.option("--command-property", multiple=True, metavar="KEY=VALUE", help="Consumer settings."),
    click.option("--print-metrics", is_flag=True, help="Print librdkafka's statistics at the end."),
    click.option("--show-detailed-stats", is_flag=True, help="Report while it runs."),
    click.option("--show-consumer-stats", is_flag=True, help="Report each consumer at the end."),
    click.option(
        "--reporting-interval", type=int, default=5000, metavar="MS", help="Time between two reports."
    ),
    click.option(
        "--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", metavar="FORMAT", help="How times are shown."
    ),
    click.option("--hide-header", is_flag=True, help="Print no header."),
    aliases={"--consumer.config": "--command-config"},
)
def share_consumer_perf_test(session: Session, flags: ShareConsumerPerfTestFlags) -> None:
    """Measure how fast a share group reads a topic."""
    require(flags, "topic")
    exactly_one(flags, "num_records", "messages")
    if flags.reporting_interval <= 0:
        raise UsageProblem("Reporting interval must be greater than 0.")
    if flags.threads < 1:
        raise UsageProblem(f"--threads {flags.threads}: expected at least one")
    if flags.messages:
        session.print("Warning: --messages is deprecated. Use --num-records instead.")
    engine.require_broker(session)
    run = _Run(session, flags)
    if not flags.hide_header:
        session.print(_TITLES)
    with engine.translated_errors():
        run.read()
    run.report()


class _Reader:
    """One consumer of the group, on a thread of its own."""

    def __init__(self, client_id: str, client: ShareConsumer, metrics: engine.Metrics) -> None:
        self.client_id = client_id
        self.client = client
        self.metrics = metrics
        self.records = self.bytes = 0


class _Run:
    """One run: joins, reads and counts."""

    def __init__(self, session: Session, flags: ShareConsumerPerfTestFlags) -> None:
        self._session = session
        self._flags = flags
        self._wanted = flags.num_records or flags.messages or 0
        self._failure: ApiException | None = None
        self._readers = [self._reader(number + 1) for number in range(flags.threads)]
        self._start_ms = self._end_ms = now_ms()

    def _reader(self, number: int) -> _Reader:
        flags = self._flags
        properties = {
            "client.id": "perf-share-consumer-client",
            "group.id": flags.group,
            "fetch.max.bytes": str(flags.fetch_size),
            "receive.buffer.bytes": str(flags.socket_buffer_size),
            **engine.parse_properties(flags.command_property),
        }
        if flags.threads > 1:
            properties["client.id"] += f"-{number}"
        metrics = engine.Metrics(wanted=flags.print_metrics)
        config = engine.settings(self._session, properties) | metrics.settings
        return _Reader(properties["client.id"], engine.share_consumer(config), metrics)

    @property
    def _records(self) -> int:
        return sum(reader.records for reader in self._readers)

    def read(self) -> None:
        self._start_ms = now_ms()
        threads = [
            threading.Thread(target=self._read, args=(number, reader), daemon=True)
            for number, reader in enumerate(self._readers, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._end_ms = now_ms()
        for reader in self._readers:
            reader.metrics.wait(reader.client)
            reader.client.close()
        if self._failure is not None:
            raise self._failure

    def _read(self, number: int, reader: _Reader) -> None:
        reader.client.subscribe([self._flags.topic])
        last = time.monotonic()
        reported = (now_ms(), 0, 0)
        while self._failure is None and self._records < self._wanted:
            if (time.monotonic() - last) * 1000 > self._flags.timeout:
                return
            messages = engine.received(reader.client.poll(_POLL_S))
            for message in messages:
                error = message.error()
                if error is not None:
                    self._failure = engine.failure(error)
                    return
                reader.bytes += len(message) + len(message.key() or b"")
            reader.records += len(messages)
            if messages:
                last = time.monotonic()
                reported = self._maybe_report(number, reader, reported)

    def _maybe_report(
        self, number: int, reader: _Reader, reported: tuple[int, int, int]
    ) -> tuple[int, int, int]:
        now, (since, records, size) = now_ms(), reported
        if now - since < self._flags.reporting_interval:
            return reported
        if self._flags.show_detailed_stats:
            mb, count, elapsed_s = (reader.bytes - size) / _MB, reader.records - records, (now - since) / 1000
            line = self._line(since, now, reader.bytes, mb / elapsed_s, count / elapsed_s, reader.records)
            self._session.print(f"{line} for share consumer {number}")
        return now, reader.records, reader.bytes

    def _line(self, start_ms: int, end_ms: int, size: int, mb_rate: float, rate: float, records: int) -> str:
        form = self._flags.date_format
        return (
            f"{java_date(form, start_ms)}, {java_date(form, end_ms)}, {size / _MB:.4f}, {mb_rate:.4f},"
            f" {rate:.4f}, {records}, {end_ms - start_ms}"
        )

    def _total(self, size: int, records: int) -> str:
        elapsed_s = max(self._end_ms - self._start_ms, 1) / 1000
        return self._line(
            self._start_ms, self._end_ms, size, size / _MB / elapsed_s, records / elapsed_s, records
        )

    def report(self) -> None:
        if self._flags.show_consumer_stats:
            for number, reader in enumerate(self._readers, 1):
                self._session.print(
                    f"Share consumer {number} having client id {reader.client_id} consumption metrics-"
                    f" {self._total(reader.bytes, reader.records)}"
                )
        if self._records < self._wanted:
            self._session.print(timeout_warning(self._flags.timeout))
        size = sum(reader.bytes for reader in self._readers)
        document = {
            "startMs": self._start_ms,
            "endMs": self._end_ms,
            "mb": size / _MB,
            "records": self._records,
            "consumers": {reader.client_id: reader.records for reader in self._readers},
        }
        self._session.result(document, [self._total(size, self._records)])
        for reader in self._readers:
            reader.metrics.show(self._session)
