"""The console consumer's formatters for Kafka's own topics: ours and Kafka's print the same bytes.

What the coordinators write is read from their topics on both systems; what they never write, such as damaged
records, from a topic of our own, because a formatter does not ask for a topic's name.
"""

from __future__ import annotations

import random
import re
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, ShareConsumer, TopicPartition

from oracle.kafka_tools import needs_java
from oracle.streams_member import StreamsMember
from oracle.tools_oracle import PATIENCE_S, JavaTools, Said, run_ottla
from oracle.tools_systems import ApachePair
from ottla.testing.process import BrokerProcess
from ottla.wire.classes import message_class
from ottla.wire.codec import encode
from ottla.wire.schema import message, message_names

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

_TOOLS = "org.apache.kafka.tools.consumer"
_REMOTE = (
    "org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde"
    "$RemoteLogMetadataFormatter"
)
_GROUP_FORMATTERS = (
    f"{_TOOLS}.OffsetsMessageFormatter",
    f"{_TOOLS}.GroupMetadataMessageFormatter",
    f"{_TOOLS}.ShareGroupMessageFormatter",
)
_TRANSACTIONS = f"{_TOOLS}.TransactionLogMessageFormatter"
_SHARE_STATE = f"{_TOOLS}.group.share.ShareGroupStateMessageFormatter"
_MODULES = {
    "kafka-group-coordinator": _GROUP_FORMATTERS,
    "kafka-transaction-coordinator": (_TRANSACTIONS,),
    "kafka-share-coordinator": (_SHARE_STATE,),
}
_ODD = 'tab\t, bell\x07, unit\x1f, delete\x7f, "quoted" \\u001f, größe, 漢字 and 🐟'
"""Text that is not written in JSON as it is."""


@pytest.fixture(scope="module", params=["ottla", "apache"])
def busy(request: pytest.FixtureRequest) -> Iterator[BrokerProcess | ApachePair]:
    """A broker whose coordinators have written of groups of all kinds, of transactions, and of what was deleted."""
    system: BrokerProcess | ApachePair = request.getfixturevalue(
        "broker" if request.param == "ottla" else "apache_pair"
    )
    at, settings = ("--bootstrap-server", system.bootstrap), {"bootstrap.servers": system.bootstrap}
    run_ottla("topics", *at, "--create", "--topic", "shown", "--partitions", 2)
    writer = Producer({**settings, "transactional.id": "shown-till"})
    writer.init_transactions()
    consumer = Consumer({**settings, "group.id": "shown-offsets"})
    _commit(consumer, [TopicPartition("shown", 0, 3, metadata=_ODD), TopicPartition("shown", 1, 4)])
    for number in range(2):
        writer.begin_transaction()
        writer.produce("shown", f"value {number}", partition=number)
        writer.send_offsets_to_transaction(
            [TopicPartition("shown", 0, number)], consumer.consumer_group_metadata()
        )
        writer.commit_transaction()
    consumer.close()
    members = [
        Consumer({**settings, "group.id": f"shown-{protocol}", "group.protocol": protocol})
        for protocol in ("classic", "consumer")
    ]
    for member in members:
        member.subscribe(["shown"])
    while any(len(member.assignment()) < 2 for member in members):
        for member in members:
            member.poll(0.1)
    for member in members:
        _commit(member, [TopicPartition("shown", 0, 1)])
        member.close()
    _take_from_queue(system, settings)
    StreamsMember(system.bootstrap, "shown-streams", "shown").join().leave()
    for group in ("shown-offsets", "shown-classic"):
        assert run_ottla("consumer-groups", *at, "--delete", "--group", group).code == 0
    yield system


def _commit(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    """Commit, as soon as Apache Kafka has a coordinator for it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def _take_from_queue(system: BrokerProcess | ApachePair, settings: dict[str, Any]) -> None:
    reset = ("--alter", "--group", "shown-queue", "--add-config", "share.auto.offset.reset=earliest")
    assert run_ottla("configs", "--bootstrap-server", system.bootstrap, *reset).code == 0
    queue = ShareConsumer({**settings, "group.id": "shown-queue"})
    queue.subscribe(["shown"])
    taken = 0
    while taken < 2:
        taken += len(queue.poll(0.1) or [])
    queue.commit_sync()
    queue.close()


class Reader:
    """Reads partitions with a formatter, by both tools."""

    def __init__(self, system: BrokerProcess | ApachePair, java: JavaTools, topic: str) -> None:
        self.java = java
        self.at = ("--bootstrap-server", system.bootstrap, "--topic", topic)

    def partitions(self) -> list[int]:
        """Those that something was written to."""
        rows = [row.split(":") for row in run_ottla("get-offsets", *self.at).out.splitlines()]
        return [int(number) for _, number, end in rows if int(end) > 0]

    def both(self, formatter: str, partition: int, *flags: object) -> tuple[Said, Said]:
        line = (*self.at, "--partition", partition, "--offset", "earliest", "--formatter", formatter, *flags)
        ours = run_ottla("consume", *line, "--until-end")
        counted = re.search(r"Processed a total of (\d+) messages", ours.err)
        # Kafka's reads as many as ours did: without a limit it would wait for more.
        return ours, self.java.run("consume", *line, "--max-messages", counted[1] if counted else 1_000)


def _same(reader: Reader, formatter: str) -> str:
    """What both print of all partitions."""
    shown = ""
    for partition in reader.partitions():
        ours, theirs = reader.both(formatter, partition)
        assert (ours.code, theirs.code) == (0, 0), ours.err + theirs.err
        assert ours.out == theirs.out
        shown += ours.out
    return shown


def test_offsets(busy: BrokerProcess | ApachePair, java_tools: JavaTools) -> None:
    shown = _same(Reader(busy, java_tools, "__consumer_offsets"), _GROUP_FORMATTERS[0])
    for group in ("offsets", "classic", "consumer"):
        assert f'{{"key":{{"type":1,"data":{{"group":"shown-{group}","topic":"shown"' in shown
    assert '"value":null}' in shown and "\n" not in shown
    assert r"\u0007, unit\u001F" in shown


def test_metadata_of_classic_groups(busy: BrokerProcess | ApachePair, java_tools: JavaTools) -> None:
    shown = _same(Reader(busy, java_tools, "__consumer_offsets"), _GROUP_FORMATTERS[1])
    assert '{"key":{"type":2,"data":{"group":"shown-classic"}},"value":{"version":' in shown
    assert '{"key":{"type":2,"data":{"group":"shown-classic"}},"value":null}' in shown
    assert '"subscription":"AA' in shown and "shown-consumer" not in shown


def test_share_groups(busy: BrokerProcess | ApachePair, java_tools: JavaTools) -> None:
    shown = _same(Reader(busy, java_tools, "__consumer_offsets"), _GROUP_FORMATTERS[2])
    assert '"groupId":"shown-queue"' in shown and "shown-classic" not in shown
    shown = _same(Reader(busy, java_tools, "__share_group_state"), _SHARE_STATE)
    assert '{"key":{"type":0,"data":{"groupId":"shown-queue"' in shown


def test_transactions(busy: BrokerProcess | ApachePair, java_tools: JavaTools) -> None:
    shown = _same(Reader(busy, java_tools, "__transaction_state"), _TRANSACTIONS)
    assert '{"key":{"type":0,"data":{"transactionalId":"shown-till"}},"value":{"version":' in shown


def _made(module: str) -> list[tuple[bytes, bytes | None]]:
    """A record of each type and version, without much in it, and the mark of its deletion."""
    made: list[tuple[bytes, bytes | None]] = []
    for name in message_names():
        known = message(name)
        if known.module != module or known.kind != "coordinator-key" or known.api_key is None:
            continue
        key = struct.pack(">h", known.api_key) + encode(message_class(name)(), 0)
        value = name.removesuffix("Key") + "Value"
        first, last = message(value).versions
        for version in range(first, last + 1):
            made.append((key, struct.pack(">h", version) + encode(message_class(value)(), version)))
        made.append((key, None))
    return made


def _damaged(records: list[tuple[bytes, bytes | None]]) -> list[tuple[bytes | None, bytes | None]]:
    """Records that are cut, of unknown types and versions, or no records at all."""
    rng = random.Random(8)
    damaged: list[tuple[bytes | None, bytes | None]] = [
        (None, b"a value alone"),
        (None, None),
        (b"", b""),
        (b"\0", b"\0\0"),
        (b"\0\x63rest", b"\0\0"),
        (b"\xff\xff", None),
    ]
    for key, value in records:
        damaged.append((key[: rng.randrange(len(key))], value))
        if value is not None:
            damaged += [(key, value[: rng.randrange(len(value))]), (key, b""), (key, b"\0\x63" + value[2:])]
            damaged += [(key, b"\xff\xff" + value[2:]), (key + b"more", value + b"more")]
    return damaged


@pytest.fixture
def ordinary(broker: BrokerProcess, topic: str) -> Iterator[tuple[str, Producer]]:
    run_ottla("topics", "--bootstrap-server", broker.bootstrap, "--create", "--topic", topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    yield topic, producer


@pytest.mark.parametrize("module", _MODULES)
def test_every_type_and_version_and_damaged_ones(
    broker: BrokerProcess, java_tools: JavaTools, ordinary: tuple[str, Producer], module: str
) -> None:
    topic, producer = ordinary
    whole = _made(module)
    for key, value in [*whole, *_damaged(whole)]:
        producer.produce(topic, value, key)
    producer.flush()
    reader = Reader(broker, java_tools, topic)
    for formatter in _MODULES[module]:
        ours, theirs = reader.both(formatter, 0, "--skip-message-on-error")
        assert (ours.code, theirs.code) == (0, 0), ours.err + theirs.err
        assert ours.out == theirs.out
        assert ours.out.count('{"key":') >= 3
        assert ours.err.count("is left out: could not read") > len(whole)
        # Without the flag both end at the first damaged one, with what was before it.
        ours, theirs = reader.both(formatter, 0)
        assert (ours.code, theirs.code) == (1, 1)
        assert ours.out == theirs.out
        assert len(ours.err.splitlines()) == 1 and "--skip-message-on-error" in ours.err


def test_remote_log_metadata(
    broker: BrokerProcess, java_tools: JavaTools, ordinary: tuple[str, Producer]
) -> None:
    topic, producer = ordinary
    partition = b"\x05logs" + bytes(range(16)) + b"\x00\x00\x00\x02" + b"\x00"
    update = b"\x01\x01\x00" + partition + bytes(16) + b"\0" + b"\0\0\0\x01" + bytes(8) + b"\x04abc\x01\x00"
    deletion = b"\x01\x02\x00" + partition + b"\0\0\0\x01" + bytes(8) + b"\x02\x00"
    for value in (
        update,
        deletion,
        None,
        b"",
        b"\x01",
        b"\x01\x09\x00",
        update[:30],
        deletion + b"more",
        update,
    ):
        producer.produce(topic, value)
    producer.flush()
    ours, theirs = Reader(broker, java_tools, topic).both(_REMOTE, 0, "--skip-message-on-error")
    assert (ours.code, ours.out) == (theirs.code, theirs.out)
    assert [line.partition("{")[0] for line in ours.out.splitlines()] == [
        "partition: 0, offset: 0, value: RemoteLogSegmentMetadataUpdate",
        "partition: 0, offset: 1, value: RemotePartitionDeleteMetadata",
        "partition: 0, offset: 8, value: RemoteLogSegmentMetadataUpdate",
    ]


def test_an_old_name_is_taken_where_kafka_knows_it_no_more(
    broker: BrokerProcess, java_tools: JavaTools, ordinary: tuple[str, Producer]
) -> None:
    topic, producer = ordinary
    key, value = next(each for each in _made("kafka-group-coordinator") if each[0].startswith(b"\0\x01"))
    producer.produce(topic, value, key)
    # A name that is no text: here it is damage, to Kafka a character that stands for it.
    producer.produce(topic, None, b"\0\x02\0\x02a\xff")
    producer.flush()
    reader = Reader(broker, java_tools, topic)
    name = "GroupMetadataManager$OffsetsMessageFormatter"
    ours, theirs = reader.both(f"kafka.coordinator.group.{name}", 0, "--skip-message-on-error")
    assert (ours.code, theirs.code) == (0, 1)
    assert ours.out.startswith('{"key":{"type":') and f"the old name of {_GROUP_FORMATTERS[0]}" in ours.err
    ours, theirs = reader.both(_GROUP_FORMATTERS[1], 0, "--skip-message-on-error")
    assert (ours.code, theirs.code) == (0, 0)
    assert "could not read the record at offset 1" in ours.err
    assert (
        theirs.out
        == ours.out + '{"key":{"type":2,"data":{"group":"a\N{REPLACEMENT CHARACTER}"}},"value":null}'
    )
