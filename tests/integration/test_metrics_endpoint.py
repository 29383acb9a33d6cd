"""A broker process with its HTTP server: the numbers are those of what clients did, and probes get the truth."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import BrokerProcess
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerFailed


class Web:
    """The HTTP server of a broker."""

    def __init__(self, broker: BrokerProcess, port: int) -> None:
        self.broker = broker
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read()

    def json(self, path: str) -> Any:
        return json.loads(self.get(path)[1])

    def metrics(self, query: str = "") -> dict[str, float]:
        """Samples by name and labels. A query of one's own is not answered from the last second's text."""
        status, text = self.get(f"/metrics?{query}")
        assert status == 200
        lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
        return {sample: float(value) for sample, _, value in (line.rpartition(" ") for line in lines)}


def start(data: Path, **settings: str) -> Web:
    (port,) = free_ports(1)
    settings = {"ottla.http.listen": f"127.0.0.1:{port}", **settings}
    broker = BrokerProcess(data, settings=settings)
    broker.start()
    return Web(broker, port)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    web = start(tmp_path_factory.mktemp("metrics") / "data", **{"ottla.http.debug": "true"})
    yield web
    web.broker.stop()


@pytest.fixture(scope="module")
def traffic(web: Web) -> str:
    """A topic with 100 records, which a group has read."""
    bootstrap = web.broker.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic("orders", 3, 1)]).values():
        created.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd"})
    for number in range(100):
        producer.produce("orders", f"order {number}".encode(), partition=number % 3)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    read = 0
    while read < 100:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        read += 1
    consumer.commit(asynchronous=False)
    consumer.close()
    return "orders"


def test_topics_count_what_clients_wrote_and_read(web: Web, traffic: str) -> None:
    found = web.metrics("topics=orders")
    of = "kafka_server_brokertopicmetrics_"
    assert found[of + 'messagesin_total{topic="orders"}'] == 100
    logs = [found[f'kafka_log_log_size{{topic="orders",partition="{n}"}}'] for n in range(3)]
    assert found[of + 'bytesin_total{topic="orders"}'] == sum(logs) > 0
    assert found[of + 'bytesout_total{topic="orders"}'] >= sum(logs)
    assert found[of + 'totalproducerequests_total{topic="orders"}'] >= 3
    assert found[of + 'totalfetchrequests_total{topic="orders"}'] >= 3
    assert found[of + 'failedproducerequests_total{topic="orders"}'] == 0
    assert found[of + "messagesin_total"] >= 100
    assert (
        sum(found[f'kafka_log_log_logendoffset{{topic="orders",partition="{n}"}}'] for n in range(3)) == 100
    )
    assert not [sample for sample in found if 'topic="__consumer_offsets"' in sample]


def test_requests_are_counted_and_timed(web: Web, traffic: str) -> None:
    found = web.metrics("topics=none")
    of = "kafka_network_requestmetrics_"
    produced = sum(
        count for sample, count in found.items() if of + 'requests_total{request="Produce"' in sample
    )
    assert produced == found[of + 'totaltimems_count{request="Produce"}'] > 0
    assert found[of + 'totaltimems{request="Produce",quantile="0.99"}'] > 0
    assert found[of + 'localtimems_count{request="Produce"}'] > 0
    assert found[of + 'errors_total{request="JoinGroup",error="MEMBER_ID_REQUIRED"}'] >= 1
    assert found[of + 'totaltimems_count{request="FetchConsumer"}'] > 0


def test_the_cluster_the_groups_and_the_process_are_there(web: Web, traffic: str) -> None:
    found = web.metrics("partitions=false")
    assert found["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    assert found["kafka_controller_kafkacontroller_offlinepartitionscount"] == 0
    assert found["kafka_server_replicamanager_partitioncount"] == 53
    assert found["kafka_server_replicamanager_underreplicatedpartitions"] == 0
    assert found['kafka_server_raftmetrics_current_state{current_state="leader"}'] == 1
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroups"] == 1
    assert found["kafka_coordinator_group_groupmetadatamanager_numoffsets"] == 3
    assert found['kafka_server_group_coordinator_metrics_group_count{protocol="classic"}'] == 1
    listener = '{listener="PLAINTEXT",networkProcessor="0"}'
    assert found["kafka_server_socket_server_metrics_connection_creation_total" + listener] > 2
    assert found['jvm_memory_bytes_max{area="heap"}'] > found['jvm_memory_used_bytes{area="heap"}']
    assert 0 <= found["ottla_event_loop_busy_ratio"] <= 1
    assert found["process_open_fds"] > 5
    assert found["process_resident_memory_bytes"] > 1e7
    assert not [sample for sample in found if sample.startswith("kafka_log_log_size")]


def test_connections_are_counted_by_client_library(web: Web) -> None:
    admin = AdminClient({"bootstrap.servers": web.broker.bootstrap})
    of_library = "kafka_server_socket_server_metrics_connections{"
    counts: list[float] = []
    # A client may connect again after it has learned its broker's name, and has no connection for a moment.
    for turn in range(20):
        admin.list_topics(timeout=30)
        # Topics of its own: another query would be answered from the text of the last second.
        found = web.metrics(f"topics=of-no-other-test-{turn}&partitions=false")
        counts = [
            count
            for sample, count in found.items()
            if sample.startswith(of_library) and 'clientSoftwareName="confluent-kafka-python"' in sample
        ]
        if counts:
            break
    assert sum(counts) >= 1


@pytest.mark.parametrize("names", ["kafka", "reporter", "confluent"])
def test_prometheus_reads_every_spelling(web: Web, traffic: str, names: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    status, text = web.get(f"/metrics?names={names}")
    assert status == 200
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    # 3 is a matter of taste: Kafka's names are not as Prometheus' style guide has them.
    assert checked.returncode in (0, 3), checked.stderr.decode()


def test_gzip_is_used_for_clients_that_take_it(web: Web) -> None:
    import gzip

    plain = web.get("/metrics?topics=x")[1]
    packed = web.get("/metrics?topics=x", **{"Accept-Encoding": "gzip"})[1]
    assert gzip.decompress(packed) == plain and len(packed) < len(plain) / 3


def test_bad_questions_get_sentences(web: Web) -> None:
    assert web.get("/metrics?names=mine") == (
        400,
        b"Unknown names=mine: expected kafka, reporter, confluent.\n",
    )
    assert web.get("/metrics?topics=(")[0] == 400
    assert web.get("/metrics?topics=" + "a" * 300)[0] == 400
    assert web.get("/debug/profile?seconds=1e9")[0] == 400
    assert web.get("/debug/log/orders/99")[0] == 404
    assert web.get("/debug/log/../../etc/passwd/0")[0] == 404


def test_probes_get_the_truth(web: Web) -> None:
    assert web.get("/health/live")[0] == 200
    assert web.json("/health/ready") == {"status": "ready"}


def test_a_log_a_profile_and_stalls_can_be_looked_at(web: Web, traffic: str) -> None:
    log = web.json("/debug/log/orders/0")
    assert log["log_end_offset"] == 34
    assert sum(segment["size"] for segment in log["segments"]) == log["size"] > 0
    taken = web.json("/debug/profile?seconds=0.1")
    loop = next(each for each in taken["profiles"] if each["name"] == "MainThread")
    assert loop["samples"] and len(loop["samples"]) == len(loop["weights"])
    assert web.json("/debug/stalls").keys() == {"longest_s", "stacks"}


@pytest.mark.slow
def test_debug_pages_are_off_and_a_token_is_asked_for(tmp_path: Path) -> None:
    web = start(tmp_path / "data", **{"ottla.http.token": "opensesame"})
    try:
        assert web.get("/metrics")[0] == 401
        status, text = web.get("/metrics", Authorization="Bearer opensesame")
        assert status == 200 and b"opensesame" not in text
        assert web.get("/health/ready")[0] == 200
        assert web.get("/debug/stalls", Authorization="Bearer opensesame")[0] == 404
        assert "opensesame" not in web.broker.log
    finally:
        web.broker.stop()


SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.mark.slow
def test_with_an_authorizer_only_loopback_or_a_token_will_do(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings = {**SECURED, "ottla.http.listen": f"0.0.0.0:{port}"}
    with pytest.raises(BrokerFailed) as refused:
        BrokerProcess(tmp_path / "open", settings=settings).start()
    assert "ottla.http.token" in str(refused.value)
    web = start(tmp_path / "data", **SECURED)
    try:
        assert web.get("/health/ready")[0] == 200
    finally:
        web.broker.stop()


@pytest.mark.slow
def test_a_taken_port_refuses_the_start(web: Web, tmp_path: Path) -> None:
    settings = {"ottla.http.listen": web.url.removeprefix("http://")}
    with pytest.raises(BrokerFailed) as refused:
        BrokerProcess(tmp_path / "data", settings=settings).start()
    assert "another process uses the port" in str(refused.value)
    assert not (tmp_path / "data" / "meta.properties").exists()


def test_refused_records_are_counted_as_what_they_are(web: Web, traffic: str) -> None:
    bootstrap = web.broker.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics(
        [NewTopic("small", 1, 1, config={"max.message.bytes": "1000"})]
    ).values():
        created.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 100_000})
    refused: list[KafkaException] = []
    producer.produce("small", b"x" * 5000, on_delivery=lambda error, _: refused.append(error))
    producer.flush(30)
    assert refused and refused[0] is not None
    found = web.metrics("topics=small")
    of = "kafka_server_brokertopicmetrics_"
    assert found[of + 'bytesrejected_total{topic="small"}'] >= 5000
    assert found[of + 'failedproducerequests_total{topic="small"}'] == 0
    assert (
        found['kafka_network_requestmetrics_errors_total{request="Produce",error="MESSAGE_TOO_LARGE"}'] >= 1
    )


def test_top_shows_nodes_that_have_metrics(web: Web, traffic: str) -> None:
    words = [sys.executable, "-m", "ottla", "top", "--bootstrap-server", web.broker.bootstrap]
    shown = subprocess.run(
        [*words, "--iterations", "1", "--interval", "0.1"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    titles, node = next(
        (line, after) for line, after in pairwise(shown.splitlines()) if line.startswith("NODE")
    )
    assert "PRODUCE P99 MS" in titles
    assert node.split()[0] == "1" and node.split()[2] == "%"


@pytest.mark.slow
def test_clients_with_a_quota_show_their_rate(web: Web, traffic: str) -> None:
    quota = ["--alter", "--entity-type", "clients", "--entity-name", "limited"]
    words = [sys.executable, "-m", "ottla", "configs", "--bootstrap-server", web.broker.bootstrap, *quota]
    subprocess.run(
        [*words, "--add-config", "producer_byte_rate=1000"], check=True, timeout=60, capture_output=True
    )
    producer = Producer({"bootstrap.servers": web.broker.bootstrap, "client.id": "limited"})
    producer.produce("orders", b"x" * 11_000)
    assert producer.flush(30) == 0
    found = web.metrics("topics=limited&names=confluent")
    (rate,) = [value for name, value in found.items() if name.startswith("kafka_server_produce_byte_rate{")]
    assert rate > 1000
    (wait,) = [
        value for name, value in found.items() if name.startswith("kafka_server_produce_throttle_time{")
    ]
    assert wait > 0
