"""`ottla producer-perf-test`: measures how fast records are stored; the output is that of kafka-producer-perf-test."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.tools import engine
from ottla.cli.tools.base import Flags, Session, exactly_one, not_with, require, tool
from ottla.cli.tools.failures import UsageProblem

if TYPE_CHECKING:
    from confluent_kafka import KafkaError as EngineError
    from confluent_kafka import Message, Producer

_MB: Final = 1024.0 * 1024.0
_MAX_SAMPLES: Final = 500_000
_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_POOL_BYTES: Final = 1 << 20
_DEFAULT_TRANSACTION_MS: Final = 3000


class ProducerPerfTestFlags(Flags):
    """The flags of `ottla producer-perf-test`."""

    topic: str
    num_records: int
    record_size: int | None
    payload_file: str | None
    payload_delimiter: str
    payload_monotonic: bool
    throughput: float
    command_property: tuple[str, ...]
    producer_props: tuple[str, ...]
    producer_config: str | None
    print_metrics: bool
    transactional_id: str | None
    transaction_duration_ms: int | None
    warmup_records: int
    reporting_interval: int


@tool(
    "producer-perf-test",
    click.option("--topic", metavar="NAME", help="The topic to write to."),
    click.option("--num-records", type=int, metavar="COUNT", help="How many records to send."),
    click.option("--record-size", type=int, metavar="BYTES", help="The size of each record."),
    click.option("--payload-file", metavar="FILE", help="Send pieces of this file, drawn at random."),
    click.option(
        "--payload-delimiter", default="\\n", metavar="TEXT", help="What stands between the pieces."
    ),
    click.option("--payload-monotonic", is_flag=True, help="Send the numbers from 0 on."),
    click.option(
        "--throughput", type=float, metavar="RATE", help="Records per second at most; -1 for no limit."
    ),
    click.option("--command-property", multiple=True, metavar="KEY=VALUE", help="Producer settings."),
    click.option("--producer-props", multiple=True, metavar="KEY=VALUE", help="Old for --command-property."),
    click.option("--producer.config", "producer_config", metavar="FILE", help="Old for --command-config."),
    click.option("--print-metrics", is_flag=True, help="Print librdkafka's statistics at the end."),
    click.option("--transactional-id", metavar="ID", help="Send in transactions."),
    click.option("--transaction-duration-ms", type=int, metavar="MS", help="How long each of them lasts."),
    click.option(
        "--warmup-records", type=int, default=0, metavar="COUNT", help="Records before the steady state."
    ),
    click.option(
        "--reporting-interval", type=int, default=5000, metavar="MS", help="Time between two reports."
    ),
    greedy=["--producer-props", "--command-property"],
)
def producer_perf_test(session: Session, flags: ProducerPerfTestFlags) -> None:
    """Measure how fast records are written to a topic."""
    require(flags, "topic", "num_records", "throughput")
    exactly_one(flags, "record_size", "payload_file", "payload_monotonic")
    not_with(flags, "producer_props", "command_property")
    if flags.num_records <= 0 or (flags.record_size is not None and flags.record_size < 0):
        raise UsageProblem("--num-records and --record-size must be positive")
    properties = _properties(session, flags)
    payloads = session.progress(_payloads(session, flags), flags.num_records)
    engine.require_broker(session)
    metrics = engine.Metrics(wanted=flags.print_metrics)
    client = engine.producer(engine.settings(session, properties) | metrics.settings)
    with engine.translated_errors():
        stats = _Run(session, flags, client, properties.get("transactional.id")).send(payloads)
    for each in stats:
        session.result(each.document(), [each.total_line()])
    metrics.wait(client)
    metrics.show(session)


def _properties(session: Session, flags: ProducerPerfTestFlags) -> dict[str, str]:
    from ottla.cli.properties_file import read_client_properties

    properties = read_client_properties(flags.producer_config) if flags.producer_config else {}
    properties |= engine.parse_properties(flags.command_property or flags.producer_props)
    properties.setdefault("client.id", "perf-producer-client")
    named = properties.pop("bootstrap.servers", None)
    if named and not session.address_given:
        # Where the flag is missing, courses name the address among the properties.
        session.bootstrap = named
    if flags.transactional_id is not None:
        properties["transactional.id"] = flags.transactional_id
    elif flags.transaction_duration_ms is not None:
        properties.setdefault("transactional.id", f"performance-producer-{random.getrandbits(64):016x}")
    return properties


def _payloads(session: Session, flags: ProducerPerfTestFlags) -> Iterator[bytes]:
    chance = random.Random(0)
    if flags.payload_monotonic:
        return (str(number).encode() for number in range(flags.num_records))
    if flags.payload_file is not None:
        session.print(f"Reading payloads from: {Path(flags.payload_file).absolute()}")
        text = Path(flags.payload_file).read_text(encoding="utf-8")
        delimiter = flags.payload_delimiter.replace("\\n", "\n").replace("\\t", "\t")
        pieces = [piece.encode() for piece in text.removesuffix(delimiter).split(delimiter)]
        if not text:
            raise UsageProblem(f"--payload-file {flags.payload_file}: the file is empty")
        session.print(f"Number of records read: {len(pieces)}")
        return (chance.choice(pieces) for _ in range(flags.num_records))
    size = flags.record_size or 0
    pool = bytes(chance.choices(_LETTERS, k=size + _POOL_BYTES))
    starts = (chance.randrange(_POOL_BYTES) for _ in range(flags.num_records))
    return (pool[start : start + size] for start in starts)


@dataclass(slots=True)
class Stats:
    """Latencies and rates, in all and since the last report."""

    expected: int
    interval_s: float
    say: Callable[[str], None]
    steady: bool = False
    quiet: bool = False
    start: float = field(default_factory=time.monotonic)
    count: int = 0
    bytes: int = 0
    latency_sum_ms: float = 0.0
    latency_max_ms: float = 0.0
    samples: list[float] = field(default_factory=list)
    window: tuple[float, int, int, float] = (0.0, 0, 0, 0.0)
    """Start, and count, bytes and latencies then."""
    window_max_ms: float = 0.0

    def __post_init__(self) -> None:
        self.window = (self.start, 0, 0, 0.0)

    def record(self, latency_ms: float, size: int) -> None:
        if self.count % max(1, self.expected // _MAX_SAMPLES) == 0:
            self.samples.append(latency_ms)
        self.count += 1
        self.bytes += size
        self.latency_sum_ms += latency_ms
        self.latency_max_ms = max(self.latency_max_ms, latency_ms)
        self.window_max_ms = max(self.window_max_ms, latency_ms)

    def maybe_report(self) -> None:
        now = time.monotonic()
        start, count, size, latency = self.window
        elapsed = now - start
        if elapsed < self.interval_s or self.count == count:
            return
        sent = self.count - count
        if self.steady and count == 0:
            self.say("In steady state.")
        if not self.quiet:
            self.say(
                f"{sent} records sent, {sent / elapsed:.1f} records/sec"
                f" ({(self.bytes - size) / elapsed / _MB:.2f} MB/sec),"
                f" {(self.latency_sum_ms - latency) / sent:.1f} ms avg latency,"
                f" {self.window_max_ms:.1f} ms max latency."
            )
        self.window, self.window_max_ms = (now, self.count, self.bytes, self.latency_sum_ms), 0.0

    def _percentiles(self) -> dict[str, int]:
        ordered = sorted(self.samples) or [0.0]
        return {name: int(ordered[min(int(part * len(ordered)), len(ordered) - 1)]) for name, part in _PARTS}

    def _rates(self) -> dict[str, float]:
        elapsed = max(time.monotonic() - self.start, 1e-9)
        return {
            "recordsPerSec": self.count / elapsed,
            "mbPerSec": self.bytes / elapsed / _MB,
            "avgLatencyMs": self.latency_sum_ms / max(1, self.count),
            "maxLatencyMs": self.latency_max_ms,
        }

    def document(self) -> dict[str, object]:
        counts = {"records": self.count, "steadyState": self.steady}
        return {**counts, **self._rates(), "percentilesMs": self._percentiles()}

    def total_line(self) -> str:
        rates = self._rates()
        parts = ", ".join(f"{value} ms {name}" for name, value in self._percentiles().items())
        return (
            f"{self.count}{' steady state' if self.steady else ''} records sent,"
            f" {rates['recordsPerSec']:f} records/sec ({rates['mbPerSec']:.2f} MB/sec),"
            f" {rates['avgLatencyMs']:.2f} ms avg latency, {rates['maxLatencyMs']:.2f} ms max latency, {parts}."
        )


_PARTS: Final = (("50th", 0.5), ("95th", 0.95), ("99th", 0.99), ("99.9th", 0.999))


class _Run:
    """One run: sends, waits, and counts what was stored."""

    def __init__(
        self, session: Session, flags: ProducerPerfTestFlags, client: Producer, transactional_id: str | None
    ) -> None:
        self._session = session
        self._flags = flags
        self._client = client
        self._transactional = transactional_id is not None
        interval_s = flags.reporting_interval / 1000
        self._stats = [Stats(flags.num_records, interval_s, session.print)]
        self._sent = 0
        self._failed = 0

    def send(self, payloads: Iterator[bytes]) -> list[Stats]:
        flags = self._flags
        duration_s = (flags.transaction_duration_ms or _DEFAULT_TRANSACTION_MS) / 1000
        if flags.warmup_records > 0:
            self._session.print(
                f"Warmup first {flags.warmup_records} records. Steady state results will print after the"
                " complete test summary."
            )
        if self._transactional:
            self._client.init_transactions()
        start, opened = time.monotonic(), None
        for payload in payloads:
            if self._transactional and opened is None:
                self._client.begin_transaction()
                opened = time.monotonic()
            if flags.warmup_records > 0 and self._sent == flags.warmup_records:
                steady = Stats(
                    flags.num_records - self._sent, self._stats[0].interval_s, self._session.print, True
                )
                self._stats[0].quiet = True
                self._stats.append(steady)
            self._produce(payload)
            if opened is not None and time.monotonic() - opened >= duration_s:
                self._client.commit_transaction()
                opened = None
            if flags.throughput > 0:
                self._hold_back(start)
        if opened is not None:
            self._client.commit_transaction()
        self._client.flush()
        if self._failed:
            self._session.error(f"{self._failed} records were not stored")
        return self._stats

    def _produce(self, payload: bytes) -> None:
        while True:
            try:
                self._client.produce(self._flags.topic, payload, on_delivery=self._delivered)
                break
            except BufferError:
                self._client.poll(0.05)
        self._sent += 1
        if self._sent % 100 == 0:
            self._client.poll(0)
            for stats in self._stats:
                stats.maybe_report()

    def _delivered(self, error: EngineError | None, message: Message) -> None:
        if error is not None:
            self._failed += 1
            return
        latency_ms = (message.latency() or 0.0) * 1000
        whole, *steady = self._stats
        whole.record(latency_ms, len(message))
        # What was on its way when the steady state began does not belong to it.
        if steady and whole.count > self._flags.warmup_records:
            steady[0].record(latency_ms, len(message))

    def _hold_back(self, start: float) -> None:
        ahead = self._sent / self._flags.throughput - (time.monotonic() - start)
        if ahead > 0.001:
            self._client.poll(ahead)
            while (left := self._sent / self._flags.throughput - (time.monotonic() - start)) > 0:
                time.sleep(left)
