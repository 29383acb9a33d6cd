"""The same load on Apache Kafka with Prometheus' JMX exporter and on Ottla: same names, types and values.

The load is made of the same bytes on both, request by request, so that counters can be compared one by one.
"""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.testing.apache import LEAN_JVM_FLAGS, ApacheKafka
from ottla.testing.maven import classpath
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire.messages import CreateTopicsRequest, FetchRequest, ListOffsetsRequest, ProduceRequest

AGENT = "io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1"
RULES = Path(__file__).with_name("jmx_rules.yml")
PARTITIONS, PRODUCES, FETCHES, LOOKUPS, EMPTY = 3, 120, 90, 25, 10
WITHIN = 0.02
NOW_MS = int(time.time() * 1000)
"""The same for both systems, and young enough to stay."""
_TYPE = re.compile(r"# TYPE (\S+) (\S+)")

COMPARED = (
    *(
        f'kafka_server_brokertopicmetrics_{name}_total{{topic="orders"}}'
        for name in ("messagesin", "bytesin", "bytesout", "totalproducerequests", "totalfetchrequests")
    ),
    *(
        f"kafka_server_brokertopicmetrics_{name}_total"
        for name in ("messagesin", "bytesin", "bytesout", "totalproducerequests", "totalfetchrequests")
    ),
    *(
        f"kafka_server_brokertopicmetrics_{name}_total"
        for name in ("failedproducerequests", "failedfetchrequests", "bytesrejected")
    ),
    *(
        f'kafka_network_requestmetrics_requests_total{{request="{name}",version="{version}"}}'
        for name, version in (("Produce", 9), ("Fetch", 12), ("FetchConsumer", 12), ("ListOffsets", 7))
    ),
    *(
        f"kafka_server_replicamanager_{name}"
        for name in (
            "leadercount", "partitioncount", "underreplicatedpartitions", "underminisrpartitioncount",
            "atminisrpartitioncount", "offlinereplicacount", "reassigningpartitions",
        )
    ),
    *(f"kafka_server_replicamanager_{name}_total" for name in ("isrshrinks", "isrexpands")),
    *(
        f'kafka_log_log_{name}{{topic="orders",partition="{number}"}}'
        for name in ("size", "logendoffset", "logstartoffset")
        for number in range(PARTITIONS)
    ),
    *(
        f'kafka_cluster_partition_{name}{{topic="orders",partition="0"}}'
        for name in ("replicascount", "insyncreplicascount", "underreplicated", "underminisr", "atminisr")
    ),
    *(
        f"kafka_controller_kafkacontroller_{name}"
        for name in (
            "activecontrollercount", "globaltopiccount", "globalpartitioncount", "activebrokercount",
            "fencedbrokercount", "offlinepartitionscount", "metadataerrorcount",
            "preferredreplicaimbalancecount",
        )
    ),
    "kafka_log_logmanager_offlinelogdirectorycount",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scraped:
    """What one system shows: the type of each family, the value of each sample."""

    types: dict[str, str]
    values: dict[str, float]


def scrape(port: int) -> Scraped:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    types = dict(found.groups() for line in lines if (found := _TYPE.match(line)))
    values = {}
    for line in lines:
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            values[in_order(name)] = float(value)
    return Scraped(types, values)


def in_order(sample: str) -> str:
    """A sample with its labels sorted, without a comma at their end."""
    name, brace, labels = sample.partition("{")
    if not brace:
        return sample
    return name + "{" + ",".join(sorted(re.findall(r'\w+="[^"]*"', labels))) + "}"


def load(port: int) -> None:
    """The same requests, one after the other."""
    with RawClient("127.0.0.1", port) as client:
        create = CreateTopicsRequest
        topic = create.CreatableTopic(name="orders", num_partitions=PARTITIONS, replication_factor=1)
        answer = client.ask(create(topics=[topic], timeout_ms=30_000), 7)
        assert answer.topics[0].error_code == 0
        for number in range(PRODUCES):
            produce(client, number)
        for number in range(FETCHES):
            fetch(client, number % PARTITIONS, number // PARTITIONS)
        for number in range(EMPTY):
            fetch(client, number % PARTITIONS, PRODUCES // PARTITIONS * 20)
        kind = ListOffsetsRequest
        for _ in range(LOOKUPS):
            place = kind.ListOffsetsTopic(
                name="orders", partitions=[kind.ListOffsetsPartition(partition_index=0, timestamp=-1)]
            )
            assert client.ask(kind(replica_id=-1, topics=[place]), 7).topics[0].partitions[0].offset > 0


def produce(client: RawClient, number: int) -> None:
    kind = ProduceRequest
    records = [Record(each, NOW_MS, b"k", b"x" * (50 + number), ()) for each in range(20)]
    part = kind.PartitionProduceData(index=number % PARTITIONS, records=build_batch(records))
    data = kind.TopicProduceData(name="orders", partition_data=[part])
    deadline = time.monotonic() + 60
    while True:
        answer = client.ask(kind(acks=-1, timeout_ms=30_000, topic_data=[data]), 9)
        code = answer.responses[0].partition_responses[0].error_code
        # A leader that is only just elected is refused at first, and counts nothing.
        if code == 0:
            return
        assert number < PARTITIONS and time.monotonic() < deadline, code


def fetch(client: RawClient, partition: int, offset: int) -> None:
    kind = FetchRequest
    part = kind.FetchPartition(
        partition=partition, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=4096
    )
    request = kind(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[kind.FetchTopic(topic="orders", partitions=[part])],
    )
    answer = client.ask(request, 12)
    assert answer.responses[0].partitions[0].error_code == 0


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scraped, Scraped]:
    """(Apache Kafka, Ottla) after the load."""
    folder = tmp_path_factory.mktemp("jmx")
    theirs_port, ours_port = free_ports(2)
    agent = f"-javaagent:{classpath(AGENT)}=127.0.0.1:{theirs_port}:{RULES}"
    kafka = ApacheKafka(folder / "apache", flags=[*LEAN_JVM_FLAGS, agent])
    kafka.format()
    ours = BrokerProcess(folder / "ottla", settings={"ottla.http.listen": f"127.0.0.1:{ours_port}"})
    try:
        kafka.start()
        ours.start()
        load(kafka.port)
        load(ours.port)
        return until_settled(theirs_port), until_settled(ours_port)
    finally:
        kafka.kill()
        ours.kill()


def until_settled(port: int) -> Scraped:
    """The last request is counted after its response; gauges of the controller follow its log."""
    deadline = time.monotonic() + 60
    wanted = in_order('kafka_network_requestmetrics_requests_total{request="ListOffsets",version="7"}')
    while True:
        found = scrape(port)
        topics = found.values.get("kafka_controller_kafkacontroller_globaltopiccount")
        if found.values.get(wanted) == LOOKUPS and topics == 1:
            return found
        assert time.monotonic() < deadline, {wanted: found.values.get(wanted), "topics": topics}


@pytest.mark.parametrize("sample", COMPARED)
def test_a_value_is_within_two_percent_of_the_exporters(
    scraped: tuple[Scraped, Scraped], sample: str
) -> None:
    theirs, ours = scraped
    name = sample.partition("{")[0]
    assert in_order(sample) in theirs.values, f"Apache Kafka has no {sample}"
    expected, found = theirs.values[in_order(sample)], ours.values[in_order(sample)]
    assert abs(found - expected) <= WITHIN * abs(expected), (expected, found)
    assert ours.types[name] == theirs.types[name]


def test_the_load_was_counted(scraped: tuple[Scraped, Scraped]) -> None:
    for system in scraped:
        assert (
            system.values['kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}'] == PRODUCES * 20
        )
        assert system.values['kafka_server_brokertopicmetrics_bytesout_total{topic="orders"}'] > 0
