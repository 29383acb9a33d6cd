"""Apache Kafka's own command-line tools against an Ottla broker."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from oracle.kafka_tools import needs_java, run_tool
from ottla.testing.process import BrokerProcess

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

TOOLS = "org.apache.kafka.tools"


def topics(broker: BrokerProcess, *arguments: object) -> str:
    return run_tool(f"{TOOLS}.TopicCommand", "--bootstrap-server", broker.bootstrap, *arguments)


def configs(broker: BrokerProcess, *arguments: object) -> str:
    return run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, *arguments)


def send(broker: BrokerProcess, topic: str, lines: list[str], *arguments: object) -> None:
    run_tool(
        f"{TOOLS}.ConsoleProducer",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, *arguments),
        stdin="".join(f"{line}\n" for line in lines),
    )


def receive(broker: BrokerProcess, topic: str, count: int, *arguments: object) -> list[str]:
    said = run_tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--partition", 0, "--offset", "earliest"),
        *("--max-messages", count, "--timeout-ms", 60000, *arguments),
    )
    return [line for line in said.splitlines() if not line.startswith(("Processed a total", "SLF4J"))]


def test_topics_are_created_described_altered_and_deleted(broker: BrokerProcess, topic: str) -> None:
    topics(broker, "--create", "--topic", topic, "--partitions", 3, "--config", "retention.ms=60000")
    described = topics(broker, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described and "ReplicationFactor: 1" in described
    assert "retention.ms=60000" in described
    assert described.count("Leader: 1") == 3
    topics(broker, "--alter", "--topic", topic, "--partitions", 6)
    assert "PartitionCount: 6" in topics(broker, "--describe", "--topic", topic)
    assert topic in topics(broker, "--list").splitlines()
    topics(broker, "--delete", "--topic", topic)
    assert topic not in topics(broker, "--list").splitlines()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_and_consumer(broker: BrokerProcess, topic: str, codec: str) -> None:
    lines = [f"line {i} of {codec}" for i in range(200)]
    send(broker, topic, lines, "--compression-codec", codec)
    assert receive(broker, topic, len(lines)) == lines


def test_configs_of_a_topic_and_a_broker(broker: BrokerProcess, topic: str) -> None:
    topics(broker, "--create", "--topic", topic)
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    configs(broker, "--alter", *of_topic, "--add-config", "cleanup.policy=compact,segment.bytes=2000000")
    described = configs(broker, "--describe", *of_topic)
    assert "cleanup.policy=compact" in described and "segment.bytes=2000000" in described
    configs(broker, "--alter", *of_topic, "--delete-config", "segment.bytes")
    assert "segment.bytes" not in configs(broker, "--describe", *of_topic)

    of_broker = ("--entity-type", "brokers", "--entity-name", 1)
    configs(broker, "--alter", *of_broker, "--add-config", "log.cleaner.threads=2")
    assert "log.cleaner.threads=2" in configs(broker, "--describe", *of_broker)
    everything = configs(broker, "--describe", *of_broker, "--all")
    assert "num.partitions=1" in everything and "DEFAULT_CONFIG" in everything


def test_a_bad_config_is_refused_with_its_name(broker: BrokerProcess, topic: str) -> None:
    topics(broker, "--create", "--topic", topic)
    said = run_tool(
        "kafka.admin.ConfigCommand",
        *(
            "--bootstrap-server",
            broker.bootstrap,
            "--alter",
            "--entity-type",
            "topics",
            "--entity-name",
            topic,
        ),
        *("--add-config", "retention.ms=soon"),
        check=False,
    )
    assert "retention.ms" in said and "InvalidConfigurationException" in said


def test_offsets_log_dirs_and_delete_records(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    send(broker, topic, [f"{i}" for i in range(10)])
    offsets = run_tool(
        f"{TOOLS}.GetOffsetShell",
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        topic,
        "--time",
        "latest",
    )
    assert f"{topic}:0:10" in offsets
    dirs = run_tool(
        f"{TOOLS}.LogDirsCommand",
        *("--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", topic),
    )
    assert f'"partition":"{topic}-0"' in dirs and '"error":null' in dirs
    assert int(re.search(r'"size":(\d+)', dirs)[1]) > 0  # type: ignore[index]

    wanted = tmp_path / "delete.json"
    wanted.write_text(
        json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1})
    )
    deleted = run_tool(
        f"{TOOLS}.DeleteRecordsCommand",
        *("--bootstrap-server", broker.bootstrap, "--offset-json-file", wanted),
    )
    assert "low_watermark: 4" in deleted
    assert receive(broker, topic, 6) == [f"{i}" for i in range(4, 10)]


def test_api_versions_are_understood(broker: BrokerProcess) -> None:
    said = run_tool(f"{TOOLS}.BrokerApiVersionsCommand", "--bootstrap-server", broker.bootstrap)
    assert "Produce(0): 0 to 13 [usable: 13]" in said
    assert "Fetch(1): 4 to 18 [usable: 18]" in said
    assert "UNSUPPORTED" in said, "what is not served must not be listed"


def test_metadata_quorum_is_described(broker: BrokerProcess) -> None:
    status = run_tool(
        f"{TOOLS}.MetadataQuorumCommand", "--bootstrap-server", broker.bootstrap, "describe", "--status"
    )
    assert re.search(r"LeaderId:\s+1\b", status)
    replication = run_tool(
        f"{TOOLS}.MetadataQuorumCommand", "--bootstrap-server", broker.bootstrap, "describe", "--replication"
    )
    assert "Leader" in replication


def test_performance_tools(broker: BrokerProcess, topic: str) -> None:
    topics(broker, "--create", "--topic", topic, "--partitions", 2)
    said = run_tool(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", 20000, "--record-size", 100, "--throughput", -1),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}"),
    )
    assert "20000 records sent" in said
    said = run_tool(
        f"{TOOLS}.ConsumerPerformance",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--num-records", 20000),
        *("--timeout", 60000),
    )
    figures = said.strip().splitlines()[-1].split(",")
    assert int(figures[4]) == 20000, said


def test_features_are_a_fresh_kafkas(broker: BrokerProcess) -> None:
    said = run_tool(f"{TOOLS}.FeatureCommand", "--bootstrap-server", broker.bootstrap, "describe")
    finalized = dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", said))
    assert finalized["metadata.version"] == "4.3-IV0"
    assert {name: finalized[name] for name in finalized if name != "metadata.version"} == {
        "transaction.version": "2",
        "group.version": "1",
        "share.version": "1",
        "streams.version": "1",
        "eligible.leader.replicas.version": "1",
        "kraft.version": finalized["kraft.version"],
    }
