"""Attacks that were found in Kafka and its kin, tried on a node that lets nobody in without credentials.

Each test is named after its class of attack; the number of a CVE is in its docstring where it is known.
`test_cve_libraries.py` and `test_cve_tokens.py` have those that need no node, `test_secrets_in_logs.py` the one about
secrets in logs.
"""

from __future__ import annotations

import base64
import hmac
import re
import socket
import ssl
import struct
import zlib
from collections.abc import Iterator
from hashlib import pbkdf2_hmac, sha512
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottla.errors import ErrorCode
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.testing.raw_client import RawClient
from ottla.wire import messages as m
from ottla.wire.codec import decode
from ottla.wire.headers import decode_response_header, encode_request
from security.secured_node import ADMIN, ALICE, SecuredNode

pytestmark = pytest.mark.slow

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_PASSWORD = "carol-secret-5d12"
_PAGE = 4096


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    made = SecuredNode(tmp_path_factory.mktemp("cve"))
    with made.broker:
        admin = AdminClient(made.client())
        names = ["t", "secret-topic"]
        for made_topic in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            made_topic.result(60)
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion("carol", credential, _PASSWORD.encode())
        admin.alter_user_scram_credentials([user])["carol"].result(60)
        yield made
        assert "Traceback" not in made.broker.log, made.broker.log
        assert made.broker.running


def allow(
    node: SecuredNode, user: str, kind: Any, name: str, operation: Any, permission: Any = None
) -> AclBinding:
    acl = AclBinding(
        kind,
        name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        permission or AclPermissionType.ALLOW,
    )
    admin = AdminClient(node.client())
    admin.create_acls([acl])[acl].result(60)
    return acl


def plain(node: SecuredNode, token: bytes) -> Any:
    with node.connect("PASSWORDS", node.context()) as client:
        client.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
        return client.ask(m.SaslAuthenticateRequest(auth_bytes=token), 2)


class Scram:
    """The client's side of SCRAM-SHA-512, to send it wrong."""

    def __init__(self, node: SecuredNode, authzid: str = "") -> None:
        self.client = node.connect("PASSWORDS", node.context())
        self.client.ask(m.SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
        self.gs2 = f"n,{'a=' + authzid if authzid else ''},"
        self.first = "n=carol,r=abcdef"
        self.answer = self._ask(self.gs2 + self.first)

    def _ask(self, text: str) -> Any:
        return self.client.ask(m.SaslAuthenticateRequest(auth_bytes=text.encode()), 2)

    def finish(self, nonce: str | None = None) -> Any:
        challenge = bytes(self.answer.auth_bytes).decode()
        found = dict(part.split("=", 1) for part in challenge.split(","))
        binding = base64.b64encode(self.gs2.encode()).decode()
        without_proof = f"c={binding},r={nonce or found['r']}"
        salted = pbkdf2_hmac("sha512", _PASSWORD.encode(), base64.b64decode(found["s"]), int(found["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha512")
        auth_message = f"{self.first},{challenge},{without_proof}".encode()
        signature = hmac.digest(sha512(client_key).digest(), auth_message, "sha512")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        with self.client:
            return self._ask(f"{without_proof},p={base64.b64encode(proof).decode()}")


def test_authorization_id_of_somebody_else(node: SecuredNode) -> None:
    """CVE-2017-12610."""
    name, password = ALICE
    assert plain(node, f"{name}\0{name}\0{password}".encode()).error_code == 0
    refused = plain(node, f"admin\0{name}\0{password}".encode())
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "authorization id that is different from username" in refused.error_message
    assert Scram(node, "carol").finish().error_code == 0
    with Scram(node, "admin").client as client:
        # The first message is refused already.
        assert client.closed_by_broker()


def test_scram_nonce_that_is_not_the_servers(node: SecuredNode) -> None:
    """CVE-2024-56128."""
    assert Scram(node).finish().error_code == 0
    for nonce in ("abcdef", "x", "abcdefabcdefabcdefabcdef"):
        assert Scram(node).finish(nonce).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def _fetch(client: RawClient, replica_id: int, offset: int = 0) -> Any:
    request = m.FetchRequest
    part = request.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    topic = request.FetchTopic(topic="t", partitions=[part])  # type: ignore[arg-type]
    asked = request(replica_id=replica_id, max_bytes=1000, topics=[topic])  # type: ignore[arg-type]
    return client.ask(asked, 12).responses[0].partitions[0]


def test_client_that_fetches_as_a_follower(node: SecuredNode) -> None:
    """CVE-2018-1288: the high watermark stays where it is, and nothing is read."""
    producer = Producer(node.client())
    producer.produce("t", b"one")
    assert producer.flush(60) == 0
    allow(node, "alice", ResourceType.TOPIC, "t", AclOperation.READ)
    with node.log_in(ALICE) as client:
        before = _fetch(client, -1)
        assert before.error_code == 0
        for replica_id in (1, 2, 77):
            posed = _fetch(client, replica_id, offset=1)
            assert (posed.error_code, posed.high_watermark, bytes(posed.records or b"")) == (DENIED, -1, b"")
        assert _fetch(client, -1).high_watermark == before.high_watermark


def test_produce_that_evades_the_rights_of_transactions(node: SecuredNode) -> None:
    """CVE-2018-17196: the header of the batch decides, not the field of the request."""
    allow(node, "alice", ResourceType.TOPIC, "t", AclOperation.WRITE)
    allow(node, "alice", ResourceType.TRANSACTIONAL_ID, "mine", AclOperation.WRITE)
    request = m.ProduceRequest
    batch = build_batch(
        [Record(0, 0, b"k", b"v", [])],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    with node.log_in(ALICE) as client:
        for transactional_id in (None, "not-mine"):
            part = request.PartitionProduceData(index=0, records=batch)
            topic = request.TopicProduceData(name="t", partition_data=[part])  # type: ignore[arg-type]
            asked = request(acks=-1, timeout_ms=1000, topic_data=[topic], transactional_id=transactional_id)  # type: ignore[arg-type]
            answer = client.ask(asked, 11).responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_names_that_a_log_might_interpret(node: SecuredNode) -> None:
    """CVE-2021-44228 and its kin: one line stays one line, and nothing in it is looked up."""
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.2)
        lookup = f"${{jndi:ldap://127.0.0.1:{trap.getsockname()[1]}/x}}"
        forged = f"{lookup}\r\n2026-01-01 00:00:00,000 INFO forged: line\x1b[2J\0"
        plain(node, f"\0{forged}\0guess".encode().replace(b"\0\0guess", b"\0guess"))
        with node.log_in(ALICE) as client:
            topic = m.CreateTopicsRequest.CreatableTopic(
                name=forged,  # type: ignore[arg-type]
                num_partitions=1,
                replication_factor=1,
            )
            client.ask(m.CreateTopicsRequest(topics=[topic]), 5)
            client.ask(m.DeleteGroupsRequest(groups_names=[forged]), 2)  # type: ignore[list-item]
            software = m.ApiVersionsRequest(client_software_name=forged, client_software_version=forged)
            client.ask(software, 3)
        with pytest.raises(TimeoutError):
            trap.accept()
    assert "forged" in node.broker.log
    line = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ (ottla|kafka|asyncio)")
    strange = [each for each in node.broker.log.splitlines() if each and not line.match(each)]
    assert not strange, strange[:3]
    assert "\x1b" not in node.broker.log


def _resident_bytes(node: SecuredNode) -> int:
    return int(Path(f"/proc/{node.broker.pid}/statm").read_text().split()[1]) * _PAGE


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_before_authentication(node: SecuredNode) -> None:
    """CVE-2022-34917: each connection announces 100 MB, or as much as is let through, and sends little of it."""
    with node.log_in(ADMIN):
        before = _resident_bytes(node)
        context = node.context()
        open_: list[RawClient] = []
        try:
            for number in range(150):
                client = node.connect("PASSWORDS", context)
                open_.append(client)
                size = 100 << 20 if number % 2 else 500 << 10
                client.socket.sendall(struct.pack(">i", size) + struct.pack(">hhih", 36, 2, 1, -1))
            assert open_[1].closed_by_broker()
            assert _resident_bytes(node) - before < 60 << 20
        finally:
            for client in open_:
                client.close()


def test_login_modules_that_load_code(node: SecuredNode) -> None:
    """CVE-2023-25194, CVE-2025-27818, CVE-2025-27819: no class is loaded and no connection is opened."""
    request = m.IncrementalAlterConfigsRequest
    with socket.create_server(("127.0.0.1", 0)) as trap, node.log_in(ADMIN) as client:
        trap.settimeout(0.2)
        url = f"ldap://127.0.0.1:{trap.getsockname()[1]}/x"
        for module in (
            "com.sun.security.auth.module.JndiLoginModule",
            "com.sun.security.auth.module.LdapLoginModule",
        ):
            text = f'{module} required user.provider.url="{url}" group.provider.url="{url}";'
            for key in ("sasl.jaas.config", "listener.name.passwords.plain.sasl.jaas.config"):
                config = request.AlterableConfig(name=key, config_operation=0, value=text)
                resource = request.AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
                answer = client.ask(request(resources=[resource]), 1).responses[0]
                assert answer.error_code == ErrorCode.INVALID_REQUEST, (key, answer)
        with pytest.raises(TimeoutError):
            trap.accept()
    with node.log_in(ALICE):
        pass


def test_acls_lost_when_one_of_two_is_removed(tmp_path: Path) -> None:
    """CVE-2024-27309: the other one holds, at once and after a restart."""
    made = SecuredNode(tmp_path)
    made.broker.start()
    try:
        admin = AdminClient(made.client())
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        allow(made, "alice", ResourceType.TOPIC, "t", AclOperation.READ)
        gone = allow(made, "alice", ResourceType.TOPIC, "t", AclOperation.WRITE)
        deny = allow(made, "bob", ResourceType.TOPIC, "t", AclOperation.READ, AclPermissionType.DENY)
        wanted = AclBindingFilter(
            gone.restype,
            gone.name,
            gone.resource_pattern_type,
            gone.principal,
            gone.host,
            gone.operation,
            gone.permission_type,
        )
        assert len(admin.delete_acls([wanted])[wanted].result(60)) == 1
        for restart in (False, True):
            if restart:
                assert made.broker.stop() == 0
                made.broker.start()
            none: Any = None
            everything = AclBindingFilter(
                ResourceType.ANY,
                none,
                ResourcePatternType.ANY,
                none,
                none,
                AclOperation.ANY,
                AclPermissionType.ANY,
            )
            left = AdminClient(made.client())
            held = left.describe_acls(everything).result(60)
            assert sorted((acl.principal, acl.operation.name) for acl in held) == [
                ("User:alice", "READ"),
                (deny.principal, "READ"),
            ]
            with made.log_in(ALICE) as client:
                assert _fetch(client, -1).error_code == 0
    finally:
        made.broker.kill()


def test_values_of_providers_stay_hidden(tmp_path: Path) -> None:
    """CVE-2019-12399 and CVE-2024-31141: only the static file names providers; answers never hold values of theirs."""
    secret = tmp_path / "secrets.properties"
    secret.write_text("where=never-shown-77aa\n")
    reference = f"${{file:{secret}:where}}"
    made = SecuredNode(tmp_path, {"ssl.key.password": "unused"})
    text = made.config.read_text().replace("ssl.key.password=unused\n", "")
    made.config.write_text(text)
    request = m.IncrementalAlterConfigsRequest
    with made.broker, made.log_in(ADMIN) as client:
        for key in ("log.retention.ms", "listener.name.passwords.ssl.key.password", "some.plugin.key"):
            config = request.AlterableConfig(name=key, config_operation=0, value=reference)
            resource = request.AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
            client.ask(request(resources=[resource]), 1)
        describe = m.DescribeConfigsRequest
        asked = describe.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        answer = client.ask(describe(resources=[asked], include_synonyms=True), 4)
        assert "never-shown-77aa" not in repr(answer)
        assert "never-shown-77aa" not in made.broker.log


def test_description_of_a_group_needs_describe(node: SecuredNode) -> None:
    """CVE-2026-41115: READ implies DESCRIBE, and nothing less than DESCRIBE is enough."""
    asked = m.ConsumerGroupDescribeRequest(group_ids=["g-described"])  # type: ignore[list-item]
    with node.log_in(ALICE) as client:
        assert client.ask(asked, 1).groups[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        allow(node, "alice", ResourceType.GROUP, "g-described", AclOperation.DELETE, AclPermissionType.DENY)
        assert client.ask(asked, 1).groups[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        allow(node, "alice", ResourceType.GROUP, "g-described", AclOperation.DESCRIBE)
        # Nobody has used a group yet, so its coordinator may not be there.
        answered = client.ask(asked, 1).groups[0].error_code
        assert answered in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR)


def test_snapshot_request_without_topics(node: SecuredNode) -> None:
    """CVE-2026-83525: the controller goes on."""
    with node.certified("CONTROLLER", "admin", node_id=1) as client:
        answer = client.ask(m.FetchSnapshotRequest(replica_id=1, topics=[]), 1)  # type: ignore[arg-type]
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert client.ask(m.DescribeClusterRequest(endpoint_type=2), 1).error_code == 0


def test_telemetry_that_unpacks_without_bound(node: SecuredNode) -> None:
    """CVE-2026-111073: a bomb is refused, whether or not anybody asks for metrics."""
    bomb = zlib.compress(bytes(100 << 20), 9, wbits=31)
    with node.log_in(ALICE) as client:
        before = _resident_bytes(node)
        pushed = m.PushTelemetryRequest(
            client_instance_id=bytes(15) + b"\1", compression_type=1, metrics=bomb
        )
        assert client.ask(pushed, 0).error_code != ErrorCode.NONE
        assert _resident_bytes(node) - before < 60 << 20
        assert client.ask(m.MetadataRequest(topics=[]), 12).error_code == 0


def test_tags_and_counts_that_amplify(node: SecuredNode) -> None:
    """CVE-2026-111108, CVE-2026-111115: half a megabyte of tags or elements before authentication closes at once."""
    for header in (
        struct.pack(">hhih", 18, 3, 1, -1) + b"\xff\xff\xff\x7f" + b"\1\0" * 200_000,
        struct.pack(">hhih", 36, 2, 1, -1) + b"\0" + b"\xff\xff\xff\xff\x07" + b"\1" * 400_000,
    ):
        with node.connect("PASSWORDS", node.context()) as client:
            client.socket.sendall(struct.pack(">i", len(header)) + header)
            assert client.closed_by_broker()


def test_sessions_of_one_listener_do_not_open_another(node: SecuredNode) -> None:
    """Tickets of the listener without client certificates must not help on the one that asks for them."""
    context = node.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    address = ("127.0.0.1", node.ports["PASSWORDS"])
    with context.wrap_socket(socket.create_connection(address), server_hostname="127.0.0.1") as first:
        session = first.session
    again = socket.create_connection(address)
    with context.wrap_socket(again, server_hostname="127.0.0.1", session=session) as second:
        assert not second.session_reused


def test_a_cut_connection_delivers_no_half_request(node: SecuredNode) -> None:
    """TLS truncation: a request that ends in the middle is never handled."""
    allow(node, "alice", ResourceType.TOPIC, "t", AclOperation.WRITE)
    with node.log_in(ADMIN) as client:
        topic = m.CreateTopicsRequest.CreatableTopic(
            name="never-made",  # type: ignore[arg-type]
            num_partitions=1,
            replication_factor=1,
        )
        from ottla.wire.headers import encode_request

        frame = b"".join(encode_request(9, "raw", m.CreateTopicsRequest(topics=[topic]), 5))
        client.socket.sendall(frame[:-3])
        client.socket.shutdown(socket.SHUT_RDWR)
    with node.log_in(ADMIN) as client:
        topics = client.ask(m.MetadataRequest(topics=None), 12).topics
    assert "never-made" not in {topic.name for topic in topics}


def test_answers_about_forbidden_and_missing_topics_are_the_same(node: SecuredNode) -> None:
    """An oracle for existence: each answer is compared byte for byte, with the name in the place of the other."""
    there, missing = "secret-topic", "absent-topic"

    def requests(name: Any) -> Iterator[tuple[Any, int]]:
        yield m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=name)]), 12
        offsets = m.ListOffsetsRequest
        part = offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
        yield offsets(topics=[offsets.ListOffsetsTopic(name=name, partitions=[part])]), 7
        fetch = m.FetchRequest
        fetched = fetch.FetchPartition(partition=0, partition_max_bytes=100)
        yield fetch(topics=[fetch.FetchTopic(topic=name, partitions=[fetched])]), 12
        delete = m.DeleteTopicsRequest
        yield delete(topics=[delete.DeleteTopicState(name=name)], timeout_ms=1000), 6
        partitions = m.CreatePartitionsRequest
        yield partitions(topics=[partitions.CreatePartitionsTopic(name=name, count=5)]), 3
        configs = m.DescribeConfigsRequest
        yield configs(resources=[configs.DescribeConfigsResource(resource_type=2, resource_name=name)]), 4
        records = m.DeleteRecordsRequest
        cut = records.DeleteRecordsPartition(partition_index=0, offset=0)
        yield records(topics=[records.DeleteRecordsTopic(name=name, partitions=[cut])]), 2
        described = m.DescribeTopicPartitionsRequest
        yield described(topics=[described.TopicRequest(name=name)]), 0
        epochs = m.OffsetForLeaderEpochRequest
        epoch = epochs.OffsetForLeaderPartition(partition=0, leader_epoch=0)
        yield epochs(topics=[epochs.OffsetForLeaderTopic(topic=name, partitions=[epoch])]), 4

    with node.log_in(ALICE) as client:
        for (asked, version), (other, _) in zip(requests(there), requests(missing), strict=True):
            first, second = repr(client.ask(asked, version)), repr(client.ask(other, version))
            assert first.replace(there, "NAME") == second.replace(missing, "NAME"), type(asked).__name__


def test_patterns_that_take_for_ever(node: SecuredNode) -> None:
    """ReDoS: a pattern of a client on names of clients is answered, and others are served meanwhile."""
    allow(node, "alice", ResourceType.TRANSACTIONAL_ID, "a" * 60, AclOperation.WRITE)
    allow(node, "alice", ResourceType.GROUP, "g", AclOperation.READ)
    with node.log_in(ALICE) as client:
        init = m.InitProducerIdRequest(transactional_id="a" * 60, transaction_timeout_ms=1000)  # type: ignore[arg-type]
        client.ask(init, 5)
        listed = m.ListTransactionsRequest(transactional_id_pattern="(a+)+$|(a|aa)+b")
        client.ask(listed, 2)
        beat = m.ConsumerGroupHeartbeatRequest(
            group_id="g",  # type: ignore[arg-type]
            member_id="member",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_regex="(t+)+$|(t|tt)+b",
            topic_partitions=[],
        )
        client.ask(beat, 1)
        assert client.ask(m.MetadataRequest(topics=[]), 12).error_code == 0


def test_bytes_of_one_client_in_the_records_of_another(node: SecuredNode) -> None:
    """CVE-2026-35554: clients share memory for what they send, in turns, in pieces, while some of them are muted."""
    clients, rounds = 6, 3
    admin = AdminClient(node.client())
    admin.create_topics([NewTopic("mixed", clients, 1)])["mixed"].result(60)
    allow(node, "alice", ResourceType.TOPIC, "mixed", AclOperation.WRITE)
    with node.log_in(ADMIN) as quotas:
        change = m.AlterClientQuotasRequest.EntryData(
            entity=[m.AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="alice")],
            ops=[m.AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=35_000)],
        )
        assert quotas.ask(m.AlterClientQuotasRequest(entries=[change]), 1).entries[0].error_code == 0
    raw = [node.log_in(ALICE if number % 2 else ADMIN) for number in range(clients)]
    request = m.ProduceRequest
    for turn in range(rounds):
        frames = []
        for number in range(clients):
            value = bytes([number * rounds + turn]) * 60_000
            part = request.PartitionProduceData(
                index=number, records=build_batch([Record(0, 0, None, value, [])])
            )
            topic = request.TopicProduceData(name="mixed", partition_data=[part])  # type: ignore[arg-type]
            asked = request(acks=1, timeout_ms=1000, topic_data=[topic])
            frames.append(b"".join(encode_request(turn + 1, "raw", asked, 11)))
        for start in range(0, max(map(len, frames)), 7000):
            for client, data in zip(raw, frames, strict=True):
                client.socket.sendall(data[start : start + 7000])
    throttled = 0
    for number, client in enumerate(raw):
        with client:
            for turn in range(rounds):
                answer = _answer_of(client, turn + 1)
                assert answer.responses[0].partition_responses[0].error_code == 0, number
                throttled += answer.throttle_time_ms > 0
    assert throttled
    consumer = Consumer(node.client() | {"group.id": "mixed"})
    consumer.assign([TopicPartition("mixed", number, 0) for number in range(clients)])
    found: dict[int | None, list[bytes | None]] = {number: [] for number in range(clients)}
    while sum(map(len, found.values())) < clients * rounds:
        for message in consumer.consume(clients * rounds, timeout=60):
            assert message.error() is None
            found[message.partition()].append(message.value())
    consumer.close()
    assert found == {
        number: [bytes([number * rounds + turn]) * 60_000 for turn in range(rounds)]
        for number in range(clients)
    }


def _answer_of(client: RawClient, correlation_id: int) -> Any:
    """The next response of a client whose requests were sent by hand."""
    size = int.from_bytes(_exactly(client.socket, 4), "big")
    data = _exactly(client.socket, size)
    assert int.from_bytes(data[:4], "big") == correlation_id
    _, offset = decode_response_header(m.ProduceRequest.API_KEY, 11, data)
    return decode(m.ProduceResponse, 11, data[offset:])


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = source.recv(count - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return data
