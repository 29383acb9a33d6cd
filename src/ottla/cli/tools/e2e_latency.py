"""`ottla e2e-latency`: measures the time from a producer through the broker to a consumer, as kafka-e2e-latency."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final, cast

import click

from ottla.cli.tools import engine
from ottla.cli.tools.base import Flags, Session, require, tool
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.values import java_double, parse_int
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka import KafkaError as EngineError

    from ottla.client.engine_types import EngineMessage

_TIMEOUT_S: Final = 60.0
_CREATION_MS: Final = 30_000
_REPORT_EVERY: Final = 1000
_PARTS: Final = (("50th", 0.5), ("99th", 0.99), ("99.9th", 0.999))
_LEGACY: Final = (
    "bootstrap_server",
    "topic",
    "num_records",
    "producer_acks",
    "record_size",
    "command_config",
)


class E2eLatencyFlags(Flags):
    """The flags of `ottla e2e-latency`."""

    words: str | None
    topic: str
    num_records: str
    producer_acks: str
    record_size: str
    record_key_size: int
    num_headers: int
    record_header_key_size: int
    record_header_size: int


@tool(
    "e2e-latency",
    click.argument("words", nargs=-1),
    click.option("--topic", metavar="NAME", help="The topic to write to and read from."),
    click.option("--num-records", metavar="COUNT", help="How many records to send."),
    click.option("--producer-acks", metavar="ACKS", help="1 or all."),
    click.option("--record-size", metavar="BYTES", help="The size of each value."),
    click.option("--record-key-size", type=int, default=0, metavar="BYTES", help="The size of each key."),
    click.option("--num-headers", type=int, default=0, metavar="COUNT", help="Headers per record."),
    click.option(
        "--record-header-key-size", type=int, default=0, metavar="BYTES", help="Size of their names."
    ),
    click.option(
        "--record-header-size", type=int, default=0, metavar="BYTES", help="Size of their values; -1: null."
    ),
)
def e2e_latency(session: Session, flags: E2eLatencyFlags) -> None:
    """Measure the time from sending a record to having read it."""
    _take_old_form(session, flags)
    require(flags, "topic", "num_records", "producer_acks", "record_size")
    if flags.producer_acks not in ("1", "all"):
        raise UsageProblem("--producer-acks must be 1 or all: latency is not synchronous otherwise")
    count = parse_int("--num-records", flags.num_records)
    if count < 1:
        raise UsageProblem("--num-records must be positive")
    engine.require_broker(session)
    _create_missing(session, flags.topic)
    with engine.translated_errors():
        latencies = _measure(session, flags, count)
    ordered = sorted(int(each) for each in latencies)
    parts = {name: ordered[int(len(ordered) * part)] for name, part in _PARTS}
    average = sum(latencies) / len(latencies)
    shown = ", ".join(f"{name} = {value}" for name, value in parts.items())
    session.result(
        {"records": count, "avgLatencyMs": average, "percentilesMs": parts},
        [f"Avg latency: {average:.4f} ms", f"Percentiles: {shown}"],
    )


def _take_old_form(session: Session, flags: E2eLatencyFlags) -> None:
    """The five or six words in a fixed order that older courses show."""
    if not flags.words:
        return
    if len(flags.words) not in (5, 6):
        raise click.UsageError(f"unexpected words: {' '.join(flags.words)}")
    named = dict(zip(_LEGACY, flags.words, strict=False))
    session.bootstrap = named.pop("bootstrap_server")
    if file := named.pop("command_config", None):
        from ottla.cli.properties_file import read_properties

        session.properties |= read_properties(file)
    for name, value in named.items():
        setattr(flags, name, value)


def _create_missing(session: Session, topic: str) -> None:
    """Create the topic with one partition if it does not exist."""
    from ottla.admin.errors import raise_for
    from ottla.admin.topics import NewTopic, create_topics

    if session.cluster.metadata([topic]).topics[0].error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return
    session.print(
        f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and replication factor = 1'
    )
    answer = create_topics(session.cluster, [NewTopic(topic, 1, 1)], timeout_ms=_CREATION_MS).topics[0]
    raise_for(answer.error_code, answer.error_message, topic)


def _measure(session: Session, flags: E2eLatencyFlags, count: int) -> list[float]:
    group = f"test-group-{time.time_ns() // 1_000_000}"
    reading = {"group.id": group, "enable.auto.commit": "false", "auto.offset.reset": "latest"}
    consumer = engine.consumer(engine.settings(session, reading, allow_auto_create_topics=True))
    producer = engine.producer(engine.settings(session, {"acks": flags.producer_acks, "linger.ms": "0"}))
    try:
        _place_at_end(consumer, flags.topic)
        producer.list_topics(flags.topic, timeout=engine.METADATA_TIMEOUT_S)
        chance = random.Random(0)
        latencies: list[float] = []
        for number in range(count):
            record = _record(chance, flags)
            elapsed_ms = _round_trip(producer, consumer, flags.topic, record)
            if number % _REPORT_EVERY == 0:
                session.print(f"{number}\t{java_double(round(elapsed_ms, 6))}")
            latencies.append(elapsed_ms)
        return latencies
    finally:
        consumer.close()


def _place_at_end(consumer: Consumer, topic: str) -> None:
    from confluent_kafka import TopicPartition

    deadline = time.monotonic() + engine.METADATA_TIMEOUT_S
    while not (
        found := consumer.list_topics(topic, timeout=engine.METADATA_TIMEOUT_S).topics[topic]
    ).partitions:
        if time.monotonic() > deadline:
            raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{topic}'")
        time.sleep(0.02)
    partitions = [TopicPartition(topic, number) for number in found.partitions]
    for each in partitions:
        each.offset = consumer.get_watermark_offsets(each, timeout=engine.METADATA_TIMEOUT_S)[1]
    consumer.assign(partitions)


Headers = list[tuple[str, str | bytes | None]]
Parts = tuple[bytes | None, bytes, Headers]


def _record(chance: random.Random, flags: E2eLatencyFlags) -> Parts:
    def letters(size: int) -> bytes:
        return bytes([chance.randrange(26) + 65]) * size

    key = letters(flags.record_key_size) if flags.record_key_size > 0 else None
    headers: Headers = [
        (
            letters(flags.record_header_key_size).decode(),
            None if flags.record_header_size < 0 else letters(flags.record_header_size),
        )
        for _ in range(flags.num_headers)
    ]
    return key, letters(parse_int("--record-size", flags.record_size)), headers


def _round_trip(producer: Producer, consumer: Consumer, topic: str, record: Parts) -> float:
    key, value, headers = record
    problems: list[EngineError | None] = []
    begin = time.perf_counter()
    producer.produce(
        topic, value, key, headers=headers or None, on_delivery=lambda error, _: problems.append(error)
    )
    producer.flush()
    got = consumer.poll(_TIMEOUT_S)
    elapsed_ms = (time.perf_counter() - begin) * 1000
    if problems and problems[0] is not None:
        raise engine.failure(problems[0])
    if got is None:
        raise ApiException(
            ErrorCode.REQUEST_TIMED_OUT, f"the record did not come back within {_TIMEOUT_S:.0f} s"
        )
    engine.check(cast("EngineMessage", got))
    if (got.key(), got.value() or b"", got.headers() or []) != (key, value, headers):
        raise ApiException(
            ErrorCode.CORRUPT_MESSAGE, "another record came back than was sent: is the topic in use?"
        )
    return elapsed_ms
