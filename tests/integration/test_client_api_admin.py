"""KafkaAdminClient on Ottla brokers: reassignments, elections, descriptions, deletions, and errors for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ottla import (
    AbortTransactionSpec,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ElectionType,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    MemberToRemove,
    OffsetSpec,
    OffsetTimestamp,
    ResourcePatternFilter,
    ResourceType,
    TopicPartition,
    TopicPartitionReplica,
    TransactionState,
)
from ottla.client.broker_errors import SecurityDisabledError, UnsupportedVersionError
from ottla.client.errors import KafkaTimeoutError, for_code
from ottla.testing.cluster import Cluster
from ottla.testing.process import BrokerProcess
from ottla.wire.apis import ApiKey

OK = for_code(0)


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as client:
        yield client


def fill(broker: BrokerProcess, topic: str, count: int) -> TopicPartition:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(count):
        producer.send(topic, b"%d" % number, timestamp_ms=1_000 + number)
    producer.close()
    return TopicPartition(topic, 0)


def test_offsets_are_looked_up_and_groups_reset(
    broker: BrokerProcess, admin: KafkaAdminClient, topic: str
) -> None:
    tp = fill(broker, topic, 5)
    assert admin.list_partition_offsets({tp: OffsetSpec.LATEST})[tp].offset == 5
    assert admin.list_partition_offsets({tp: 1_003})[tp][:2] == (3, 1_003)
    for spec, offset in ((OffsetSpec.EARLIEST, 0), (OffsetTimestamp(1_002), 2), (4, 4), (99, 5)):
        assert admin.reset_group_offsets(topic, {tp: spec}) == {tp: {"error": OK, "offset": offset}}
        assert admin.list_group_offsets(topic)[topic][tp].offset == offset
    with pytest.raises(for_code(3)):
        admin.list_partition_offsets({TopicPartition("nowhere", 0): OffsetSpec.LATEST})


@pytest.mark.slow
def test_members_are_sent_away(broker: BrokerProcess, admin: KafkaAdminClient, topic: str) -> None:
    fill(broker, topic, 1)
    consumer = KafkaConsumer(topic, bootstrap_servers=broker.bootstrap, group_id=topic, client_id="reader")
    while not consumer.assignment():
        consumer.poll(100)
    (member,) = admin.describe_groups([topic])[topic]["members"]
    name = member["member_id"]
    assert admin.remove_group_members(topic, [MemberToRemove(name)]) == {name: OK}
    assert admin.describe_groups([topic])[topic]["members"] == []
    consumer.close(autocommit=False)


def test_a_transaction_is_found_and_ended(broker: BrokerProcess, admin: KafkaAdminClient, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"open").get(timeout=60)
    tp = TopicPartition(topic, 0)
    (listed,) = admin.list_transactions(transactional_id_pattern=topic)[1]
    assert (listed.transactional_id, listed.state) == (topic, TransactionState.ONGOING)
    reported = admin.describe_transactions([topic])[topic]
    assert reported.topic_partitions == {tp} and reported.producer_id == listed.producer_id
    (state,) = admin.describe_producers([tp])[tp].active_producers
    assert state.current_transaction_start_offset == 0
    assert admin.find_hanging_transactions() == []
    (hanging,) = admin.find_hanging_transactions(max_transaction_timeout_ms=-300_000)
    assert (hanging["transactional_id"], hanging["topic_partitions"]) == (topic, [tp])
    admin.abort_transaction(
        AbortTransactionSpec(tp, state.producer_id, state.producer_epoch, state.coordinator_epoch)
    )
    (state,) = admin.describe_producers([tp], broker_id=1)[tp].active_producers
    assert state.current_transaction_start_offset == -1
    producer.close(timeout=0)


def test_the_cluster_tells_of_itself(broker: BrokerProcess, admin: KafkaAdminClient, topic: str) -> None:
    fill(broker, topic, 1)
    (quorum,) = admin.describe_metadata_quorum()["topics"]
    assert quorum["partitions"][0]["leader_id"] == 1 and quorum["partitions"][0]["error"] is None
    assert admin.describe_features()["metadata.version"]["finalized"][1] > 0
    assert admin.update_features({"group.version": 1}, validate_only=True) == {"group.version": "OK"}
    assert admin.api_versions()[ApiKey.FETCH] == admin.get_broker_version_data(1).api_versions[ApiKey.FETCH]
    assert topic in admin.list_config_resources(["topic"])["topic"]
    (only,) = admin.describe_topic_partitions([topic])["topics"]
    assert only["partitions"][0]["isr_nodes"] == [1]
    ((directory,),) = [each["log_dirs"] for each in admin.describe_log_dirs({topic: [0]})]
    assert [each["name"] for each in directory["topics"]] == [topic]
    replica = TopicPartitionReplica(topic, 0, 1)
    assert admin.alter_replica_log_dirs({replica: directory["log_dir"]}) == {replica: OK}


def test_unknown_keys_are_refused_before_anything_changes(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([topic], wait_for_metadata=True)
    with pytest.raises(ValueError, match=r"has no setting nonsense"):
        admin.alter_configs([ConfigResource("TOPIC", topic, {"retention.ms": 5, "nonsense": 1})])
    assert (
        admin.describe_configs([ConfigResource("TOPIC", topic)])["topic"][topic].get("retention.ms") is None
    )
    reported = admin.alter_configs([ConfigResource("TOPIC", topic, {"nonsense": 1})], raise_on_unknown=False)
    assert reported["topic"][topic] != "OK"


def test_what_is_not_served_is_told(admin: KafkaAdminClient) -> None:
    everything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    with pytest.raises((SecurityDisabledError, UnsupportedVersionError)):
        admin.describe_acls(ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, everything))


def test_a_consumer_waits_for_its_cluster(start_broker: Callable[..., BrokerProcess]) -> None:
    process = start_broker()
    consumer = KafkaConsumer(bootstrap_servers=process.bootstrap)
    consumer.bootstrap(timeout_ms=60_000)
    process.kill()
    with pytest.raises(KafkaTimeoutError):
        consumer.bootstrap(timeout_ms=0)
    consumer.close()


@pytest.mark.slow
def test_partitions_move_and_leaders_change(cluster: Cluster, topic: str) -> None:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics({topic: {"assignments": {0: [1, 2]}}}, wait_for_metadata=True)
        tp = TopicPartition(topic, 0)
        assert admin.alter_partition_reassignments({tp: [2, 1]}) == {tp: None}
        while admin.list_partition_reassignments({topic: [0]}):
            pass
        reported = admin.elect_leaders(ElectionType.PREFERRED, [topic])
        assert reported["error_code"] == 0
        # Any broker may be asked, and hears of it in its own time.
        cluster.wait_for(lambda: admin.describe_topics([topic])[0]["partitions"][0]["leader_id"] == 2)
        assert admin.elect_leaders(ElectionType.PREFERRED, {topic: [0]})["error_code"] == 0
        with pytest.raises(for_code(3)):
            admin.elect_leaders(ElectionType.PREFERRED, {"nowhere": [0]})
        assert admin.alter_partition_reassignments({tp: None}) == {tp: for_code(85)}
        with pytest.raises(ValueError):
            admin.alter_partition_reassignments({tp: []})
