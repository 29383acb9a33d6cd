"""Clients that mean harm: what each known kind of attack on a broker may cost, and that others are served meanwhile."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.errors import ErrorCode
from ottla.records.batch import build_batch
from ottla.records.codecs import Compression
from ottla.records.record import Record
from ottla.testing.cluster import Cluster
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire import messages

Start = Callable[..., BrokerProcess]
MIB = 1 << 20
ROOM_TO_CONNECT = {"socket.listen.backlog.size": 4096}
"""Else thousands that come at once wait for the kernel to ask again."""


def memory_bytes(broker: BrokerProcess, what: str = "VmRSS") -> int:
    """`VmRSS` is what it holds now, `VmHWM` the most it ever held."""
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(what)


def forget_peak(broker: BrokerProcess) -> int:
    """The peak counts from now on; gives what is held now."""
    Path(f"/proc/{broker.pid}/clear_refs").write_text("5")
    return memory_bytes(broker)


pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="measures memory in /proc")


def serves(broker: BrokerProcess) -> float:
    """It answers; gives how long that took."""
    began = time.monotonic()
    with RawClient(broker.host, broker.port) as client:
        assert client.ask(messages.MetadataRequest(topics=[]), 12).brokers
    return time.monotonic() - began


@contextlib.contextmanager
def many(broker: BrokerProcess, count: int) -> Iterator[list[socket.socket]]:
    """So many connections, from addresses enough not to meet the cap of one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 500
    if hard < wanted:
        pytest.skip(f"needs {wanted} open files, the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    opened: list[socket.socket] = []
    try:
        for number in range(count):
            sock = socket.socket()
            opened.append(sock)
            sock.bind((f"127.0.0.{2 + number // 3000}", 0))
            sock.connect((broker.host, broker.port))
        yield opened
    finally:
        for sock in opened:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- unbounded allocation before authentication (CVE-2023-34455, CVE-2022-34917 and their kind)


@pytest.mark.slow
def test_cve_announced_sizes_are_not_allocated(broker: BrokerProcess) -> None:
    serves(broker)
    before = forget_peak(broker)
    with many(broker, 300) as connections:
        for sock in connections:
            sock.sendall(struct.pack(">i", 100 * MIB) + b"\0\x03\0\x0c")
        serves(broker)
        assert memory_bytes(broker, "VmHWM") - before < 48 * MIB


@pytest.mark.parametrize("version", [1, 12], ids=["old", "flexible"])
def test_cve_announced_counts_are_not_allocated(broker: BrokerProcess, version: int) -> None:
    serves(broker)
    before = forget_peak(broker)
    flexible = version >= 9
    for count in (2**31 - 1, 100_000_000, 2**20):
        body = _varint(count + 1) if flexible else struct.pack(">i", count)
        header = struct.pack(">hhih", 3, version, 1, -1) + (b"\0" if flexible else b"")
        request = header + body + bytes(100)
        with RawClient(broker.host, broker.port) as client:
            client.socket.sendall(struct.pack(">i", len(request)) + request)
            assert client.closed_by_broker()
    # A number of tags that is not there either.
    request = struct.pack(">hhih", 18, 3, 1, -1) + _varint(2**28) + bytes(50)
    with RawClient(broker.host, broker.port) as client:
        client.socket.sendall(struct.pack(">i", len(request)) + request)
        assert client.closed_by_broker()
    serves(broker)
    assert memory_bytes(broker, "VmHWM") - before < 32 * MIB


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


# -- decompression bombs


@pytest.mark.parametrize("codec", [each for each in Compression if each], ids=lambda codec: codec.name)
def test_cve_decompression_bombs_are_refused(broker: BrokerProcess, codec: Compression) -> None:
    topic = f"bomb-{codec.name.lower()}"
    with RawClient(broker.host, broker.port, timeout_s=60) as client:
        create = messages.CreateTopicsRequest
        config = create.CreatableTopicConfig(name="cleanup.policy", value="compact")
        size = create.CreatableTopicConfig(name="max.message.bytes", value=str(16 * MIB))
        asked = create.CreatableTopic(
            name=topic, num_partitions=1, replication_factor=1, configs=[config, size]
        )
        client.ask(create(topics=[asked], timeout_ms=10_000), 7)
        # Of zeros, as much as fits: 60 MiB is beyond what may be unpacked for any of them.
        bomb = build_batch([Record(0, 0, b"k", bytes(60 * MIB), [])], compression=codec)
        assert len(bomb) < 16 * MIB
        before = forget_peak(broker)
        produce = messages.ProduceRequest
        part = produce.PartitionProduceData(index=0, records=bomb)
        named = produce.TopicProduceData(name=topic, partition_data=[part])
        answer = client.ask(produce(acks=-1, timeout_ms=10_000, topic_data=[named]), 9)
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        grown = memory_bytes(broker, "VmHWM") - before
    assert code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD), code
    assert grown < 64 * MIB + len(bomb), f"{grown / MIB:.0f} MiB"
    serves(broker)


# -- a consumer that poses as a replica (CVE-2018-1288)


@pytest.mark.slow
def test_cve_a_consumer_posing_as_a_replica_does_not_move_the_high_watermark(tmp_path: Path) -> None:
    settings = {"replica.lag.time.max.ms": 60_000, "broker.session.timeout.ms": 60_000}
    with Cluster(tmp_path, settings=settings) as cluster:
        cluster.create_topic("t", configs={"min.insync.replicas": 1})
        leader = cluster.leader_of("t")
        assert leader is not None
        named = messages.MetadataRequest.MetadataRequestTopic(name="t")
        topic_id = cluster.ask(messages.MetadataRequest(topics=[named]), 12).topics[0].topic_id
        followers = [node_id for node_id in cluster.broker_ids if node_id != leader]
        for node_id in followers:
            cluster.pause(node_id)
        host, port = cluster.plans[leader].address
        with RawClient(host, port, timeout_s=30) as client:
            produce = messages.ProduceRequest
            batch = build_batch([Record(0, 0, None, b"not replicated", [])])
            part = produce.PartitionProduceData(index=0, records=batch)
            named = produce.TopicProduceData(name="t", partition_data=[part])
            answer = client.ask(produce(acks=1, timeout_ms=5_000, topic_data=[named]), 9)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            for replica in (*followers, 77):
                # No epoch, or one of before the replica's registration. Who could know a later one is a matter of
                # authorization.
                for epoch in (-1, 0):
                    _pose(client, topic_id, replica, epoch)
            assert _high_watermark(client) == 0
        for node_id in followers:
            cluster.resume(node_id)
        cluster.wait_in_sync("t")

        def replicated() -> bool:
            with RawClient(host, port) as client:
                return _high_watermark(client) == 1

        cluster.wait_for(replicated)


def _pose(client: RawClient, topic_id: bytes, replica: int, epoch: int) -> None:
    """A fetch that says that this replica has everything up to offset 1."""
    request = messages.FetchRequest
    for version in (11, 17):
        part = request.FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
        named = request.FetchTopic(topic="t", topic_id=topic_id, partitions=[part])
        asked = request(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[named])
        if version < 15:
            asked.replica_id = replica
        else:
            asked.replica_state = request.ReplicaState(replica_id=replica, replica_epoch=epoch)
        client.ask(asked, version)


def _high_watermark(client: RawClient) -> int:
    request = messages.ListOffsetsRequest
    part = request.ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = request(replica_id=-1, topics=[request.ListOffsetsTopic(name="t", partitions=[part])])
    return int(client.ask(asked, 7).topics[0].partitions[0].offset)


# -- malformed requests that end a process


def test_cve_no_malformed_request_ends_the_process(start_broker: Start) -> None:
    # Room for all, lest the kernel lets those wait for seconds that come faster than they are accepted.
    broker = start_broker(settings={"socket.listen.backlog.size": 2000})
    with RawClient(broker.host, broker.port) as client:
        apis = client.ask(messages.ApiVersionsRequest(), 0).api_keys
    for api in apis:
        for version in range(api.min_version, api.max_version + 1):
            for body in (b"", b"\xff" * 64, bytes(64), b"\x7f" * 300):
                request = struct.pack(">hhih", api.api_key, version, 1, -1) + body
                with socket.create_connection((broker.host, broker.port), 60) as sock:
                    sock.sendall(struct.pack(">i", len(request)) + request)
                    sock.shutdown(socket.SHUT_WR)
    serves(broker)
    assert broker.running


# -- secrets in logs


def test_cve_secrets_are_not_told(start_broker: Start) -> None:
    broker = start_broker(
        settings={"ssl.keystore.password": "hunter2-start", "ssl.key.password": "hunter2-start"}
    )
    with RawClient(broker.host, broker.port) as client:
        alter = messages.IncrementalAlterConfigsRequest
        for name in (
            "ssl.truststore.password",
            "listener.name.plaintext.ssl.key.password",
            "no.such.password",
        ):
            config = alter.AlterableConfig(name=name, config_operation=0, value="hunter2-dynamic")
            resource_named = alter.AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
            answer = client.ask(alter(resources=[resource_named]), 1)
            assert "hunter2" not in (answer.responses[0].error_message or "")
        describe = messages.DescribeConfigsRequest
        asked = describe.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        reported = client.ask(describe(resources=[asked], include_synonyms=True), 4).results[0].configs
        passwords = [entry for entry in reported if entry.name.endswith("password")]
        assert passwords
        for entry in reported:
            assert "hunter2" not in (entry.value or "")
            assert all("hunter2" not in (synonym.value or "") for synonym in entry.synonyms)
    assert broker.stop() == 0
    assert "hunter2" not in broker.log + broker.ready_line


# -- connections


@pytest.mark.slow
def test_ten_thousand_idle_connections_fit_into_300_megabytes(start_broker: Start) -> None:
    broker = start_broker(
        settings={**ROOM_TO_CONNECT, "max.connections": 11_000, "max.connections.per.ip": 11_000}
    )
    with many(broker, 10_000):
        serves(broker)
        assert memory_bytes(broker) < 300_000_000


def cost_s(broker: BrokerProcess, count: int = 1_000) -> float:
    """How much of a core the broker takes for so many requests of a good client."""
    with RawClient(broker.host, broker.port) as client:
        # Earlier connections are accepted before this gets a response.
        client.ask(messages.MetadataRequest(topics=[]), 12)
        before = processor_s(broker)
        for _ in range(count):
            client.ask(messages.MetadataRequest(topics=[]), 12)
        return processor_s(broker) - before


def processor_s(broker: BrokerProcess) -> float:
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_slow_lorises_do_not_hurt_good_clients_and_are_reaped(start_broker: Start) -> None:
    broker = start_broker(settings={**ROOM_TO_CONNECT, "connections.max.idle.ms": 10_000})
    alone = cost_s(broker)
    with many(broker, 5_000) as lorises:
        poll = select.poll()
        for sock in lorises:
            sock.sendall(struct.pack(">i", 1000))
            poll.register(sock, select.POLLIN)
        crowded = cost_s(broker)
        # Twice, and what some ticks of the clock add to anything.
        assert crowded < 2 * alone + 0.1
        gone: set[int] = set()
        deadline = time.monotonic() + 60
        while len(gone) < len(lorises) and time.monotonic() < deadline:
            for sock in lorises:
                with contextlib.suppress(OSError):
                    sock.send(b"\0")
            gone |= {number for number, _ in poll.poll(200)}
        assert len(gone) == len(lorises), f"{len(lorises) - len(gone)} of them hold on"
    serves(broker)


@pytest.mark.slow
def test_who_never_reads_costs_little_and_is_reaped(start_broker: Start) -> None:
    broker = start_broker(settings={"connections.max.idle.ms": 2_000})
    serves(broker)
    before = forget_peak(broker)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect((broker.host, broker.port))
        sock.setblocking(False)
        request = struct.pack(">ihhih", 10, 18, 0, 1, -1)
        deadline = time.monotonic() + 60
        poll = select.poll()
        poll.register(sock, select.POLLOUT)
        ended = False
        while not ended and time.monotonic() < deadline:
            if poll.poll(500):
                try:
                    sock.send(request * 1000)
                except BlockingIOError:
                    continue
                except OSError:
                    ended = True
        assert ended, "the connection was not closed"
    serves(broker)
    assert memory_bytes(broker, "VmHWM") - before < 48 * MIB


def test_half_open_connections_are_reaped(start_broker: Start) -> None:
    broker = start_broker(settings={**ROOM_TO_CONNECT, "connections.max.idle.ms": 1_000})
    serves(broker)
    fds = Path(f"/proc/{broker.pid}/fd")
    before = len(os.listdir(fds))
    with many(broker, 200) as connections:
        # Half of them have closed their side, the others are gone without a word.
        for sock in connections[:100]:
            sock.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + 60
        while len(os.listdir(fds)) > before + 2:
            assert time.monotonic() < deadline, "they are still there"
            select.select([], [], [], 0.05)
    serves(broker)
