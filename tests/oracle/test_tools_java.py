"""Our tools beside Kafka's of the same name, on Ottla and on Apache Kafka: the same lines, the same exit codes.

The order of rows is left out of the comparison: Kafka's tools print them as they come out of a hash table.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, ShareConsumer, TopicPartition

from oracle.kafka_tools import needs_java
from oracle.streams_member import StreamsMember
from oracle.tools_oracle import PATIENCE_S, JavaTools, Said, run_ottla
from oracle.tools_systems import ApachePair
from ottla.testing.process import BrokerProcess

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

_SUBCOMMANDS = ("cluster",)
"""Tools that take the address after the subcommand."""


@pytest.fixture(scope="module")
def java(java_tools: JavaTools) -> JavaTools:
    return java_tools


@pytest.fixture(scope="module", params=["ottla", "apache"])
def system(request: pytest.FixtureRequest) -> BrokerProcess | ApachePair:
    """One after the other: a broker of ours, and two of Apache Kafka."""
    found: BrokerProcess | ApachePair = request.getfixturevalue(
        "broker" if request.param == "ottla" else "apache_pair"
    )
    return found


@pytest.fixture(scope="module")
def busy(system: BrokerProcess | ApachePair) -> Iterator[BrokerProcess | ApachePair]:
    """A broker with topics, records, groups of both protocols with and without members, and transactions."""
    at = ("--bootstrap-server", system.bootstrap)
    run_ottla(
        "topics", *at, "--create", "--topic", "orders", "--partitions", 3, "--config", "retention.ms=60000"
    )
    run_ottla("topics", *at, "--create", "--topic", "visits", "--partitions", 2)
    settings = {"bootstrap.servers": system.bootstrap}
    producer = Producer(settings)
    for number in range(30):
        producer.produce("orders", f"value {number}", f"key {number}", number % 3)
    producer.flush()
    for group, protocol in (("shop", "classic"), ("desk", "consumer")):
        consumer = Consumer({**settings, "group.id": group, "group.protocol": protocol})
        commit(consumer, [TopicPartition("orders", each, 4 + each) for each in range(3)])
        consumer.close()
    members = [
        Consumer(
            {
                **settings,
                "group.id": group,
                "client.id": f"{group}-1",
                "group.protocol": protocol,
                # They stay, and nobody polls them any more.
                "max.poll.interval.ms": 3_600_000,
            }
        )
        for group, protocol in (("classic-live", "classic"), ("consumer-live", "consumer"))
    ]
    for member in members:
        member.subscribe(["orders", "visits"])
    while any(len(member.assignment()) < 5 for member in members):
        for member in members:
            member.poll(0.1)
    queue = ShareConsumer({**settings, "group.id": "queue", "client.id": "queue-1"})
    queue.subscribe(["orders"])
    while '"partition"' not in run_ottla("share-groups", *at, "--describe", "--all-groups", "--json").out:
        queue.poll(0.1)
    streamer = StreamsMember(system.bootstrap, "counts", "orders").join()
    run_ottla("topics", *at, "--create", "--topic", "old-app-store-changelog")
    writer = Producer({**settings, "transactional.id": "till", "transaction.timeout.ms": 900_000})
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce("visits", "one", partition=0)
    writer.flush()
    yield system
    writer.abort_transaction()
    streamer.leave()
    for member in [*members, queue]:
        member.close()


def commit(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    """Commit, as soon as Apache Kafka has a coordinator for it."""
    deadline = time.monotonic() + 60
    while True:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def run_both(
    system: BrokerProcess | ApachePair, java: JavaTools, line: str, **words: object
) -> tuple[Said, Said]:
    tool, *arguments = shlex.split(line.format(**words))
    at = ["--bootstrap-server", system.bootstrap]
    full = [*arguments, *at] if tool in _SUBCOMMANDS else [*at, *arguments]
    return java.run(tool, *full), run_ottla(tool, *full)


def comparable(text: str) -> list[str]:
    """Lines without what differs from one question to the next: moments, and the order of hash tables."""
    lines = [re.sub(r"\b1\d{12}\b", "<moment>", line) for line in text.splitlines()]
    for index, line in enumerate(lines):
        before, found, configs = line.partition("\tConfigs: ")
        if found:
            lines[index] = before + found + ",".join(sorted(configs.split(",")))
    return sorted(lines)


def in_order(text: str) -> object:
    """The JSON of log-dirs with its partitions in order."""
    document = json.loads(text)
    for broker in document["brokers"]:
        broker["logDirs"].sort(key=lambda each: each["logDir"])
    for directory in (each for broker in document["brokers"] for each in broker["logDirs"]):
        directory["partitions"].sort(key=lambda each: each["partition"])
    return document


READING = """
topics --list
topics --list --topic ord.*
topics --list --exclude-internal
topics --describe
topics --describe --topic orders
topics --describe --topic orders,visits
topics --describe --topic nothing --if-exists
topics --describe --topics-with-overrides
topics --describe --under-replicated-partitions
topics --describe --unavailable-partitions
topics --describe --under-min-isr-partitions
topics --describe --at-min-isr-partitions
topics --describe --partition-size-limit-per-response 1
consumer-groups --list
consumer-groups --list --state
consumer-groups --list --type
consumer-groups --list --state --type
consumer-groups --list --state stable
consumer-groups --list --state Empty --type consumer,classic
consumer-groups --describe --group shop
consumer-groups --describe --group shop --offsets --verbose
consumer-groups --describe --group shop --state --verbose
consumer-groups --describe --group shop --members --verbose
consumer-groups --describe --group classic-live
consumer-groups --describe --group classic-live --verbose
consumer-groups --describe --group classic-live --members
consumer-groups --describe --group classic-live --members --verbose
consumer-groups --describe --group classic-live --state
consumer-groups --describe --group consumer-live --verbose
consumer-groups --describe --group consumer-live --members --verbose
consumer-groups --describe --group consumer-live --state --verbose
consumer-groups --describe --all-groups --state
consumer-groups --validate-regex orders.*
consumer-groups --reset-offsets --group shop --topic orders --to-earliest --dry-run
consumer-groups --reset-offsets --group shop --topic orders:0,2 --to-latest --dry-run
consumer-groups --reset-offsets --group shop --all-topics --to-current --dry-run
consumer-groups --reset-offsets --group shop --all-topics --to-offset 7 --dry-run
consumer-groups --reset-offsets --group shop --all-topics --to-offset 700 --dry-run
consumer-groups --reset-offsets --group shop --all-topics --shift-by -2 --dry-run
consumer-groups --reset-offsets --group shop --all-topics --shift-by 20 --dry-run
consumer-groups --reset-offsets --group shop --all-topics --by-duration PT1H --dry-run
consumer-groups --reset-offsets --group shop --all-topics --to-datetime 2020-01-01T00:00:00.000 --dry-run
consumer-groups --reset-offsets --group shop --topic visits --to-datetime 2020-01-01T00:00:00.000+0200 --dry-run
consumer-groups --reset-offsets --group shop --all-topics --to-latest --dry-run --export
consumer-groups --reset-offsets --group shop --group desk --all-topics --to-latest --dry-run --export
consumer-groups --reset-offsets --group newcomer --topic orders --to-latest --dry-run
share-groups --list
share-groups --list --state
share-groups --list --state stable
share-groups --describe --group queue
share-groups --describe --group queue --offsets --verbose
share-groups --describe --group queue --members
share-groups --describe --all-groups --members --verbose
share-groups --describe --group queue --state
share-groups --describe --group queue --state --verbose
share-groups --reset-offsets --group newcomer --topic orders --to-earliest --dry-run
share-groups --reset-offsets --group newcomer --topic orders:1 --to-datetime 2020-01-01T00:00:00.000 --dry-run
streams-groups --list
streams-groups --list --state
streams-groups --list --state stable,empty
streams-groups --describe --group counts
streams-groups --describe --group counts --offsets --verbose
streams-groups --describe --all-groups --members
streams-groups --describe --group counts --members --verbose
streams-groups --describe --group counts --state
streams-groups --describe --group counts --state --verbose
streams-application-reset --application-id old-app --dry-run
streams-application-reset --application-id old-app --input-topics orders --dry-run
streams-application-reset --application-id shop --input-topics orders --to-latest --dry-run
streams-application-reset --application-id shop --input-topics orders --to-offset 7 --dry-run
streams-application-reset --application-id shop --input-topics orders --to-offset 700 --dry-run
streams-application-reset --application-id shop --input-topics orders --shift-by 2 --dry-run
streams-application-reset --application-id shop --input-topics orders --shift-by -20 --dry-run
streams-application-reset --application-id shop --input-topics orders --by-duration PT1H --dry-run
streams-application-reset --application-id shop --input-topics visits --to-datetime 2020-01-01T00:00:00.000 --dry-run
streams-application-reset --application-id old-app --internal-topics old-app-store-changelog --dry-run
streams-application-reset --application-id old-app --intermediate-topics visits --dry-run --force
groups --list
groups --list --consumer
groups --list --share
groups --list --streams
groups --list --group-type classic
groups --list --protocol consumer
configs --describe --entity-type topics --entity-name orders
configs --describe --topic orders --all
configs --describe --topic nothing
configs --describe --entity-type topics
configs --describe --entity-type brokers --entity-name 1
configs --describe --broker 1 --all
configs --describe --entity-type brokers
configs --describe --entity-type brokers --entity-default
configs --describe --entity-type groups
configs --describe --group shop
configs --describe --group nothing
configs --describe --entity-type client-metrics
get-offsets
get-offsets --topic orders
get-offsets --topic or.* --partitions 0,2
get-offsets --topic orders --time earliest
get-offsets --topic orders --time -2
get-offsets --topic-partitions orders:1-,visits:0
get-offsets --exclude-internal-topics --time latest
get-offsets --topic orders --time 0
log-dirs --describe --topic-list orders
log-dirs --describe --topic-list orders,visits --broker-list 1
broker-api-versions
cluster cluster-id
cluster list-endpoints
cluster list-endpoints --include-fenced-brokers
features describe
features describe --node-id 1
features version-mapping
features version-mapping --release-version 3.9
features feature-dependencies --feature transaction.version=2 --feature metadata.version=25
metadata-quorum describe --status
metadata-quorum describe --replication
transactions list
transactions list --transactional-id-pattern t.*
transactions list --duration-filter 600000
transactions describe-producers --topic visits --partition 0
transactions find-hanging --topic visits
"""


@pytest.mark.parametrize("line", READING.strip().splitlines())
def test_what_is_shown_is_the_same(busy: BrokerProcess | ApachePair, java: JavaTools, line: str) -> None:
    def shape(text: str) -> object:
        if not line.startswith("log-dirs"):
            return comparable(text)
        before, after, document = text.splitlines()
        return before, after, in_order(document)

    deadline = time.monotonic() + PATIENCE_S
    while True:
        theirs, ours = run_both(busy, java, line)
        codes = (theirs.code, ours.code)
        # The two need not ask the same broker, and one may be a moment behind the other.
        if (codes == (0, 0) and shape(ours.out) == shape(theirs.out)) or time.monotonic() > deadline:
            break
    assert codes == (0, 0), theirs.err + ours.err
    assert shape(ours.out) == shape(theirs.out)


def test_an_open_transaction_is_described_alike(busy: BrokerProcess | ApachePair, java: JavaTools) -> None:
    theirs, ours = run_both(busy, java, "transactions describe --transactional-id till")
    titles, cells = ([cell.strip() for cell in line.split("\t")] for line in ours.out.splitlines())
    their_titles, their_cells = (
        [cell.strip() for cell in line.split("\t")] for line in theirs.out.splitlines()
    )
    age = titles.index("TransactionDurationMs")
    assert titles == their_titles
    assert [*cells[:age], *cells[age + 1 :]] == [*their_cells[:age], *their_cells[age + 1 :]]
    assert cells[titles.index("TransactionState")] == "Ongoing"


WRITING = """
topics --create --topic made-{by} --partitions 2 --config segment.bytes=2000000
topics --create --topic made-{by} --if-not-exists
topics --create --topic spread-{by} --replica-assignment 1,1,1
topics --alter --topic made-{by} --partitions 4
configs --alter --entity-type topics --entity-name made-{by} --add-config cleanup.policy=[compact,delete],retention.ms=5
configs --alter --topic made-{by} --delete-config retention.ms
configs --alter --topic made-{by} --add-config-file {file}
configs --alter --broker 1 --add-config log.cleaner.threads=2
configs --alter --broker-defaults --add-config background.threads=8
configs --alter --group made-{by} --add-config consumer.session.timeout.ms=50000
consumer-groups --reset-offsets --group made-{by} --topic orders --to-earliest --execute
consumer-groups --reset-offsets --group made-{by} --topic orders --from-file {plan} --execute
consumer-groups --delete-offsets --group made-{by} --topic orders:1
consumer-groups --delete --group made-{by}
delete-records --offset-json-file {deletions}
topics --delete --topic made-{by}
topics --delete --topic gone --if-exists
"""


def test_what_is_changed_is_confirmed_alike(
    busy: BrokerProcess | ApachePair, java: JavaTools, tmp_path: Path
) -> None:
    settings = tmp_path / "topic.properties"
    settings.write_text("max.message.bytes=2000\nflush.messages=10\n")
    plan = tmp_path / "plan.csv"
    plan.write_text("orders,0,2\norders,2,3\n")
    deletions = tmp_path / "deletions.json"
    deletions.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "orders", "partition": 0, "offset": 1}]})
    )
    at = ["--bootstrap-server", busy.bootstrap]
    for line in WRITING.strip().splitlines():
        said: dict[str, Said] = {}
        for by, run in (("java", java.run), ("self", run_ottla)):
            words = shlex.split(line.format(by=by, file=settings, plan=plan, deletions=deletions))
            said[by] = run(words[0], *at, *words[1:])
            assert said[by].code == 0, (line, said[by])
        assert comparable(said["self"].out.replace("-self", "-java")) == comparable(said["java"].out), line
    for kind, flag in (("topics", "--topic"), ("configs", "--topic")):
        shown = [java.run(kind, *at, "--describe", flag, f"spread-{by}").out for by in ("java", "self")]
        without_ids = [re.sub(r"TopicId: \S+", "", text).replace("-self", "-java") for text in shown]
        assert without_ids[0] == without_ids[1]


REFUSED = """
topics --list --create
topics --create
topics --describe --partitions 3
topics --create --topic orders
topics --create --topic bad/name
topics --create --topic none --partitions 0
topics --create --topic none --replication-factor 9
topics --create --topic none --config nonsense=1
topics --create --topic none --replica-assignment 1:1
topics --alter --topic orders --partitions 1
topics --delete --topic nothing
topics --describe --topic nothing
topics --bogus
consumer-groups --list --describe
consumer-groups --describe
consumer-groups --describe --group shop --members --offsets
consumer-groups --delete-offsets --group shop
consumer-groups --reset-offsets --group shop --topic orders --dry-run --execute --to-latest
consumer-groups --reset-offsets --group shop --to-latest --dry-run
consumer-groups --reset-offsets --group shop --topic orders --to-latest --to-earliest --dry-run
consumer-groups --list --state nonsense
configs --describe
configs --describe --entity-type bogus
configs --alter --topic orders
configs --alter --topic orders --add-config retention.ms
configs --alter --topic orders --add-config retention.ms=soon
configs --describe --entity-type brokers --entity-name one
get-offsets --topic nothing
get-offsets --topic orders --time soon
get-offsets --topic orders --topic-partitions orders:1
log-dirs --describe --broker-list 7
features upgrade --feature metadata.version=999
features upgrade
metadata-quorum describe
transactions describe --transactional-id nobody
groups --list --group-type bogus
share-groups --describe
share-groups --describe --group queue --members --state
share-groups --reset-offsets --group queue --topic orders --to-latest
share-groups --reset-offsets --group queue --topic orders --to-latest --execute
share-groups --list --state nonsense
streams-groups
streams-groups --describe
streams-groups --describe --group nothing
streams-groups --describe --group counts --members --state
streams-groups --reset-offsets --group counts --all-input-topics --to-latest
streams-groups --delete-offsets --group counts
streams-groups --list --state nonsense
streams-application-reset
streams-application-reset --application-id consumer-live
streams-application-reset --application-id old-app --input-topics nothing --dry-run
streams-application-reset --application-id old-app --internal-topics orders --dry-run
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_what_they_refuse_we_refuse_in_one_line(
    busy: BrokerProcess | ApachePair, java: JavaTools, line: str
) -> None:
    theirs, ours = run_both(busy, java, line)
    assert theirs.code == 1, theirs
    assert ours.code == 1, ours
    assert len(ours.err.splitlines()) == 1 and ours.err.startswith("ottla: "), ours.err


def test_records_pass_between_the_consoles(busy: BrokerProcess | ApachePair, java: JavaTools) -> None:
    at = ("--bootstrap-server", busy.bootstrap, "--topic", "talk")
    properties = ("parse.key=true", "parse.headers=true", "key.separator=|", "null.marker=NULL")
    reading = [word for each in properties for word in ("--reader-property", each)]
    text = "h1:v1,h2:v2\tk1|one\nNULL\tNULL|two\nh:NULL\tk3|NULL\n"
    assert java.run("produce", *at, *reading, stdin=text).code == 0
    assert run_ottla("produce", *at, *reading, stdin=text).code == 0
    columns = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
    showing = [word for each in columns for word in ("--formatter-property", f"print.{each}=true")]
    for more in ([], showing, [*showing, "--formatter-property", "null.literal=-"]):
        question = (*at, "--partition", 0, "--offset", "earliest", "--max-messages", 6, *more)
        theirs, ours = java.run("consume", *question), run_ottla("consume", *question)
        assert (ours.code, ours.out) == (theirs.code, theirs.out)
        assert "Processed a total of 6 messages" in ours.err


def test_a_share_group_is_measured_in_the_same_columns(
    system: BrokerProcess | ApachePair, java: JavaTools
) -> None:
    at = ("--bootstrap-server", system.bootstrap)
    topic = "measured"
    run_ottla("topics", *at, "--create", "--topic", topic)
    producer = Producer({"bootstrap.servers": system.bootstrap})
    for number in range(400):
        producer.produce(topic, f"value {number}")
    producer.flush()
    shown: list[list[str]] = []
    for by, run in (("java", java.run), ("self", run_ottla)):
        group = f"measurers-{by}"
        run_ottla(
            "configs", *at, "--alter", "--group", group, "--add-config", "share.auto.offset.reset=earliest"
        )
        said = run(
            *("share-consumer-perf-test", *at, "--topic", topic, "--group", group, "--num-records", 300),
            *("--show-consumer-stats", "--timeout", 60_000),
        )
        assert said.code == 0, said
        shown.append(said.out.splitlines())
    theirs, ours = shown
    assert ours[0] == theirs[0]
    titles = ours[0].split(", ")
    for lines in shown:
        assert lines[1].startswith(
            "Share consumer 1 having client id perf-share-consumer-client consumption metrics- "
        )
        cells = lines[2].split(", ")
        assert len(cells) == len(titles)
        assert int(cells[titles.index("data.consumed.in.nMsg")]) >= 300


def test_a_share_group_is_measured_only_with_sense(busy: BrokerProcess | ApachePair, java: JavaTools) -> None:
    for line in (
        "share-consumer-perf-test --num-records 5",
        "share-consumer-perf-test --topic orders",
        "share-consumer-perf-test --topic orders --num-records 5 --messages 5",
    ):
        theirs, ours = run_both(busy, java, line)
        assert (theirs.code, ours.code) == (1, 1), (line, theirs, ours)
