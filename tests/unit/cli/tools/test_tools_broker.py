"""The tools as a user runs them, on a broker of their own: what they print, to the letter."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest

from ottla.testing.process import BrokerProcess


class Said(NamedTuple):
    code: int
    out: str
    err: str


def ottla(broker: BrokerProcess | None, *words: object, stdin: str = "") -> Said:
    at = [] if broker is None else ["--bootstrap-server", broker.bootstrap]
    tool, *rest = map(str, words)
    command = [sys.executable, "-m", "ottla", tool, *at, *rest]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)
    return Said(done.returncode, done.stdout, done.stderr)


def test_a_topic_from_its_creation_to_its_end(broker: BrokerProcess, topic: str) -> None:
    made = ottla(
        broker, "topics", "--create", "--topic", topic, "--partitions", 2, "--config", "retention.ms=5"
    )
    assert made == (0, f"Created topic {topic}.\n", "")
    assert ottla(broker, "topics", "--create", "--topic", topic, "--if-not-exists") == (0, "", "")
    shown = ottla(broker, "topics", "--describe", "--topic", topic).out
    identity = re.search(r"TopicId: (\S+)", shown)
    assert identity is not None
    assert shown == (
        f"Topic: {topic}\tTopicId: {identity[1]}\tPartitionCount: 2\tReplicationFactor: 1"
        "\tConfigs: min.insync.replicas=1,retention.ms=5\n"
        f"\tTopic: {topic}\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n"
        f"\tTopic: {topic}\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n"
    )
    assert ottla(broker, "topics", "--alter", "--topic", topic, "--partitions", 3) == (0, "", "")
    (document,) = json.loads(ottla(broker, "topics", "--describe", "--topic", topic, "--json").out)
    assert document["partitionCount"] == 3 and document["topicId"] == identity[1]
    assert ottla(broker, "topics", "--delete", "--topic", topic) == (0, "", "")
    assert topic not in ottla(broker, "topics", "--list").out.splitlines()


def test_records_go_in_and_come_out(broker: BrokerProcess, topic: str) -> None:
    sent = ottla(broker, "produce", "--topic", topic, "--property", "parse.key=true", stdin="a\t1\nb\t2\n")
    assert sent == (0, "", "")
    got = ottla(broker, "consume", "--topic", topic, "--from-beginning", "--max-messages", 2)
    assert got == (0, "1\n2\n", "Processed a total of 2 messages\n")
    got = ottla(
        broker,
        *("consume", "--topic", topic, "--partition", 0, "--offset", 1, "--max-messages", 1, "--json"),
    )
    record = json.loads(got.out)
    assert (record["offset"], record["key"], record["value"]) == (1, "b", "2")


def test_a_consumer_that_waits_long_enough_ends(broker: BrokerProcess, topic: str) -> None:
    ottla(broker, "topics", "--create", "--topic", topic)
    got = ottla(broker, "consume", "--topic", topic, "--timeout-ms", 300)
    assert (got.code, got.out) == (0, "")
    assert got.err.endswith("Processed a total of 0 messages\n")


def test_a_group_is_described_reset_and_deleted(broker: BrokerProcess, topic: str) -> None:
    ottla(broker, "produce", "--topic", topic, stdin="1\n2\n3\n")
    group = f"group-of-{topic}"
    plan = ("consumer-groups", "--reset-offsets", "--group", group, "--topic", topic)
    assert ottla(broker, *plan, "--to-offset", 2, "--execute").code == 0
    shown = ottla(broker, "consumer-groups", "--describe", "--group", group)
    assert shown.err == f"\nConsumer group '{group}' has no active members.\n"
    widths = max(15, len(group)), max(15, len(topic))
    titles = (
        "PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID     HOST            CLIENT-ID"
    )
    cells = "0          2               3               1               -               -               -"
    assert shown.out == (
        f"\n{'GROUP'.ljust(widths[0])} {'TOPIC'.ljust(widths[1])} {titles}"
        f"\n{group.ljust(widths[0])} {topic.ljust(widths[1])} {cells}\n"
    )
    deleted = ottla(broker, "consumer-groups", "--delete", "--group", group)
    assert deleted == (0, f"Deletion of requested consumer groups ('{group}') was successful.\n", "")
    again = ottla(broker, "consumer-groups", "--describe", "--group", group)
    assert again.code == 1 and again.out == "" and len(again.err.splitlines()) == 1


def test_a_plan_is_exported_and_read_again(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    ottla(broker, "produce", "--topic", topic, stdin="1\n2\n3\n")
    plan = ("consumer-groups", "--reset-offsets", "--group", f"planned-{topic}")
    exported = ottla(broker, *plan, "--topic", topic, "--to-latest", "--export", "--dry-run").out
    assert exported == f"{topic},0,3\n\n"
    file = tmp_path / "plan.csv"
    file.write_text(exported.replace(",3", ",1"))
    assert ottla(broker, *plan, "--from-file", file, "--execute").code == 0
    (row,) = json.loads(ottla(broker, "consumer-groups", "--describe", "--group", plan[3], "--json").out)
    assert (row["current_offset"], row["lag"]) == (1, 2)


def test_performance_is_told_in_kafkas_words(broker: BrokerProcess, topic: str) -> None:
    sent = ottla(
        broker,
        *("producer-perf-test", "--topic", topic, "--num-records", 500, "--record-size", 10),
        *("--throughput", -1, "--producer-props", "acks=1", "linger.ms=1", "--warmup-records", 100),
    )
    assert sent.code == 0, sent.err
    tail = (
        r" records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency,"
    )
    tail += r" \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th\."
    assert re.fullmatch("500" + tail, sent.out.splitlines()[1])
    assert re.fullmatch("400 steady state" + tail, sent.out.splitlines()[2])
    read = ottla(
        broker,
        *("consumer-perf-test", "--topic", topic, "--num-records", 500, "--hide-header", "--timeout", 60_000),
        *("--command-property", "group.protocol=consumer"),
    )
    assert read.out.split(", ")[4] == "500", read
    there = ottla(
        broker,
        *("e2e-latency", "--topic", f"{topic}-2", "--num-records", 5, "--producer-acks", "all"),
        *("--record-size", 10, "--record-key-size", 3, "--num-headers", 1, "--record-header-key-size", 2),
    )
    assert there.code == 0 and there.out.splitlines()[2].startswith("Avg latency: "), there


def test_numbers_are_written_and_told(broker: BrokerProcess, topic: str) -> None:
    said = ottla(
        broker,
        *("verifiable-producer", "--topic", topic, "--max-messages", 3, "--repeating-keys", 2),
        *("--value-prefix", 7, "--message-create-time", 1000),
    )
    events = [json.loads(line) for line in said.out.splitlines()]
    sent = [each for each in events if each["name"] == "producer_send_success"]
    assert [(each["key"], each["value"], each["offset"]) for each in sent] == [
        *(("0", "7.0", 0), ("1", "7.1", 1), ("0", "7.2", 2)),
    ]
    assert [events[0]["name"], events[-2]["name"]] == ["startup_complete", "shutdown_complete"]
    assert (events[-1]["name"], events[-1]["sent"], events[-1]["acked"]) == ("tool_data", 3, 3)
    said = ottla(
        broker,
        *("verifiable-consumer", "--topic", topic, "--group-id", topic, "--group-protocol", "consumer"),
        *("--max-messages", 3, "--verbose"),
    )
    events = [json.loads(line) for line in said.out.splitlines()]
    assert [each["value"] for each in events if each["name"] == "record_data"] == ["7.0", "7.1", "7.2"]
    (committed,) = [each for each in events if each["name"] == "offsets_committed"][-1]["offsets"]
    assert committed == {"topic": topic, "partition": 0, "offset": 3}
    assert events[-1]["name"] == "shutdown_complete"


@pytest.mark.skipif(not hasattr(confluent_kafka, "ShareConsumer"), reason="needs a share consumer")
def test_a_queue_hands_each_record_out_once(broker: BrokerProcess, topic: str) -> None:
    ottla(broker, "produce", "--topic", topic, stdin="1\n2\n3\n")
    ottla(broker, "configs", "--alter", "--group", topic, "--add-config", "share.auto.offset.reset=earliest")
    take = ("console-share-consumer", "--topic", topic, "--group", topic, "--max-messages")
    assert ottla(broker, *take, 2) == (0, "1\n2\n", "Processed a total of 2 messages\n")
    shown = ottla(broker, *take, 1, "--formatter-property", "print.delivery=true")
    assert shown.out == "Delivery:2\t3\n", "it was released by the one who wanted two only"


def test_nobody_at_the_address_is_one_line() -> None:
    for words in (
        ("topics", "--list"),
        ("consume", "--topic", "t"),
        ("produce", "--topic", "t"),
        ("consumer-groups", "--list"),
        ("cluster", "cluster-id"),
    ):
        said = ottla(None, *words, "--bootstrap-server", "127.0.0.1:1")
        assert said.code == 1 and said.out == ""
        assert said.err.startswith("ottla: no broker answers at 127.0.0.1:1 ("), said.err
        assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("security.protocol=BOGUS", "expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=CRAM-MD5",
            "is not supported by this tool: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI are",
        ),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN", "needs username and password"),
    ],
)
def test_security_that_cannot_be_is_one_line(
    broker: BrokerProcess, tmp_path: Path, settings: str, expected: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(settings + "\n")
    said = ottla(broker, "topics", "--list", "--command-config", file)
    assert said.code == 1 and len(said.err.splitlines()) == 1 and expected in said.err


def test_a_broker_without_an_authorizer_says_so(broker: BrokerProcess, tmp_path: Path) -> None:
    assert ottla(broker, "acls", "--list") == (1, "", "ottla: No Authorizer is configured.\n")
    file = tmp_path / "client.properties"
    file.write_text("client.id=someone\n")
    said = ottla(broker, "delegation-tokens", "--describe", "--command-config", file)
    assert said.code == 1
    assert said.err.startswith("ottla: Delegation Token requests are not allowed on PLAINTEXT")


@pytest.mark.parametrize("script", ["topics", "console-consumer", "consumer-groups", "dump-log"])
def test_kafkas_scripts_run_the_tools(script: str) -> None:
    path = Path(__file__).parents[4] / "bin" / f"kafka-{script}.sh"
    done = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "Usage: ottla" in done.stdout
