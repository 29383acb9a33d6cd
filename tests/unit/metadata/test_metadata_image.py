"""What records do to the image: the rules of Kafka's MetadataDelta."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ApiException, ErrorCode
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, ListenerEndpoint, MetadataImage, VersionRange
from ottla.metadata.partitions import DIRECTORY_MIGRATING
from ottla.metadata.snapshot import image_to_records
from ottla.wire import messages as m

TOPIC_ID = b"topic-id-16bytes"
OTHER_ID = b"other-id-16bytes"
DIR_A, DIR_B = b"a" * 16, b"b" * 16


def image_of(*records: Any, on: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    delta = MetadataDelta(on)
    delta.replay_all(records)
    return delta.apply(on.offset + len(records), 1)


def partition(index: int = 0, **fields: Any) -> Any:
    defaults: dict[str, Any] = {
        "topic_id": TOPIC_ID,
        "partition_id": index,
        "replicas": [1, 2],
        "isr": [1, 2],
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": [DIR_A, DIR_B],
    }
    return m.PartitionRecord(**{**defaults, **fields})


TOPIC = m.TopicRecord(name="orders", topic_id=TOPIC_ID)


def register(broker_id: int = 1, epoch: int = 10, **fields: Any) -> Any:
    cls = m.RegisterBrokerRecord
    return cls(
        broker_id=broker_id,
        broker_epoch=epoch,
        incarnation_id=b"i" * 16,
        end_points=[cls.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
        features=[
            cls.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)
        ],
        log_dirs=[DIR_B, DIR_A],
        **fields,
    )


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image = image_of(TOPIC, partition(0), partition(1, leader=2))
    topic = image.topics.by_name["orders"]
    assert topic is image.topics.by_id[TOPIC_ID]
    assert topic.partitions[1].leader == 2
    assert topic.partitions[0].directory(2) == DIR_B


def test_an_image_never_changes() -> None:
    before = image_of(TOPIC, partition())
    after = image_of(
        m.PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, leader=2),
        m.TopicRecord(name="more", topic_id=OTHER_ID),
        m.ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1"),
        on=before,
    )
    assert before.topics.by_id[TOPIC_ID].partitions[0].leader == 1
    assert list(before.topics.by_name) == ["orders"]
    assert before.configs.of(2, "orders") == {}
    assert after.topics.by_id[TOPIC_ID].partitions[0].leader == 2
    assert after.brokers is before.brokers


def test_a_change_leaves_out_what_stays_and_moves_the_epochs() -> None:
    image = image_of(TOPIC, partition(leader_epoch=4, partition_epoch=7))
    shrunk = image_of(m.PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, isr=[1]), on=image)
    p = shrunk.topics.by_id[TOPIC_ID].partitions[0]
    assert (p.isr, p.leader, p.leader_epoch, p.partition_epoch, p.replicas) == ((1,), 1, 4, 8, (1, 2))
    led = image_of(
        m.PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, leader=-1, eligible_leader_replicas=[2]),
        on=shrunk,
    )
    p = led.topics.by_id[TOPIC_ID].partitions[0]
    assert (p.leader, p.leader_epoch, p.partition_epoch, p.elr) == (-1, 5, 9, (2,))


def test_clearing_elr_of_one_topic_and_of_all() -> None:
    image = image_of(
        TOPIC,
        partition(eligible_leader_replicas=[2], last_known_elr=[1]),
        m.TopicRecord(name="other", topic_id=OTHER_ID),
        partition(topic_id=OTHER_ID, eligible_leader_replicas=[1]),
    )
    one = image_of(m.ClearElrRecord(topic_name="orders"), on=image)
    assert one.topics.by_id[TOPIC_ID].partitions[0].elr == ()
    assert one.topics.by_id[OTHER_ID].partitions[0].elr == (1,)
    assert one.topics.by_id[OTHER_ID] is image.topics.by_id[OTHER_ID]
    every = image_of(m.ClearElrRecord(topic_name=""), on=image)
    assert all(
        p.elr == p.last_known_elr == () for t in every.topics.by_id.values() for p in t.partitions.values()
    )


def test_records_from_before_directories_are_known() -> None:
    image = image_of(TOPIC, partition(directories=[]))
    assert image.topics.by_id[TOPIC_ID].partitions[0].directories == (DIRECTORY_MIGRATING,) * 2


def test_removing_a_topic_takes_its_configs_along() -> None:
    image = image_of(
        TOPIC,
        partition(),
        m.ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5"),
    )
    delta = MetadataDelta(image)
    delta.replay(m.RemoveTopicRecord(topic_id=TOPIC_ID))
    after = delta.apply(9, 1)
    assert not after.topics.by_id and not after.topics.by_name and not after.configs.resources
    assert delta.deleted_topics[TOPIC_ID] is image.topics.by_id[TOPIC_ID]
    assert delta.changed_configs == {(2, "orders")}


def test_a_topic_made_and_removed_in_one_delta_leaves_no_trace() -> None:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay_all([TOPIC, partition(), m.RemoveTopicRecord(topic_id=TOPIC_ID)])
    assert delta.apply(3, 1).topics == EMPTY_IMAGE.topics
    assert not delta.changed_topics and not delta.deleted_topics


def test_a_topic_made_anew_under_its_old_name() -> None:
    image = image_of(TOPIC, partition())
    delta = MetadataDelta(image)
    delta.replay_all(
        [m.RemoveTopicRecord(topic_id=TOPIC_ID), m.TopicRecord(name="orders", topic_id=OTHER_ID)]
    )
    after = delta.apply(9, 1)
    assert after.topics.by_name["orders"].id == OTHER_ID
    assert list(after.topics.by_id) == [OTHER_ID]
    assert delta.deleted_topics.keys() == {TOPIC_ID}
    assert delta.changed_topics[OTHER_ID].is_new


def test_the_delta_says_which_partitions_changed() -> None:
    image = image_of(TOPIC, partition(0), partition(1))
    delta = MetadataDelta(image)
    delta.replay(m.PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=1, leader=2))
    change = delta.changed_topics[TOPIC_ID]
    assert not change.is_new
    assert list(change.partition_changes) == [1]
    assert change.partition_changes[1].leader == 2


def test_a_broker_registers_is_unfenced_and_goes() -> None:
    image = image_of(register(rack="r"))
    broker = image.brokers[1]
    assert broker.fenced and broker.rack == "r"
    assert broker.listeners == {"PLAINTEXT": ListenerEndpoint("PLAINTEXT", "h", 9092, 0)}
    assert broker.features == {"metadata.version": VersionRange(7, 30)}
    assert broker.directories == (DIR_A, DIR_B)
    image = image_of(m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=10, fenced=-1), on=image)
    assert not image.brokers[1].fenced
    image = image_of(
        m.BrokerRegistrationChangeRecord(
            broker_id=1,
            broker_epoch=10,
            in_controlled_shutdown=1,
            log_dirs=[DIR_A],
            cordoned_log_dirs=[DIR_A],
        ),
        on=image,
    )
    broker = image.brokers[1]
    assert broker.in_controlled_shutdown and not broker.fenced
    assert broker.directories == broker.cordoned_directories == (DIR_A,)
    image = image_of(m.FenceBrokerRecord(id=1, epoch=10), on=image)
    assert image.brokers[1].fenced
    image = image_of(m.UnfenceBrokerRecord(id=1, epoch=10), on=image)
    assert not image.brokers[1].fenced
    assert not image_of(m.UnregisterBrokerRecord(broker_id=1, broker_epoch=10), on=image).brokers


def test_features_are_set_and_removed_and_kraft_version_is_no_business_of_theirs() -> None:
    image = image_of(
        m.FeatureLevelRecord(name="metadata.version", feature_level=30),
        m.FeatureLevelRecord(name="group.version", feature_level=1),
        m.FeatureLevelRecord(name="kraft.version", feature_level=1),
    )
    assert image.features == {"metadata.version": 30, "group.version": 1}
    assert image.metadata_version == 30
    assert image_of(m.FeatureLevelRecord(name="group.version", feature_level=0), on=image).features == {
        "metadata.version": 30
    }


def test_a_config_without_a_value_is_removed() -> None:
    config = {"resource_type": 4, "resource_name": "", "name": "min.insync.replicas"}
    image = image_of(m.ConfigRecord(**config, value="1"))
    assert image.configs.of(4, "") == {"min.insync.replicas": "1"}
    assert image_of(m.ConfigRecord(**config, value=None), on=image).configs.resources == {}


def test_quotas_acls_credentials_tokens_and_producer_ids() -> None:
    entity = m.ClientQuotaRecord.EntityData
    quota = {
        "entity": [
            entity(entity_type="user", entity_name=None),
            entity(entity_type="client-id", entity_name="c"),
        ]
    }
    acl = {
        "resource_type": 2,
        "resource_name": "orders",
        "pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    scram = {"salt": b"s", "stored_key": b"k", "server_key": b"v", "iterations": 4096}
    token = {
        "owner": "User:a",
        "requester": "User:a",
        "renewers": ["User:b"],
        "issue_timestamp": 1,
        "max_timestamp": 2,
        "expiration_timestamp": 3,
        "token_id": "t",
    }
    image = image_of(
        m.ClientQuotaRecord(**quota, key="producer_byte_rate", value=1.5),
        m.AccessControlEntryRecord(id=TOPIC_ID, **acl),
        m.UserScramCredentialRecord(name="a", mechanism=1, **scram),
        m.DelegationTokenRecord(**token),
        m.ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=1000),
    )
    assert image.client_quotas == {(("client-id", "c"), ("user", None)): {"producer_byte_rate": 1.5}}
    assert image.acls[TOPIC_ID].principal == "User:a"
    assert image.scram[1, "a"].iterations == 4096
    assert image.tokens["t"].renewers == ("User:b",)
    assert image.producer_ids.next == 1000
    assert image_of(*image_to_records(image)).same_metadata(image)
    gone = image_of(
        m.ClientQuotaRecord(**quota, key="producer_byte_rate", remove=True),
        m.RemoveAccessControlEntryRecord(id=TOPIC_ID),
        m.RemoveUserScramCredentialRecord(name="a", mechanism=1),
        m.RemoveDelegationTokenRecord(token_id="t"),
        on=image,
    )
    assert not gone.client_quotas and not gone.acls and not gone.scram and not gone.tokens


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (partition(), ErrorCode.UNKNOWN_TOPIC_ID),
        (m.RemoveTopicRecord(topic_id=TOPIC_ID), ErrorCode.UNKNOWN_TOPIC_ID),
        (m.ClearElrRecord(topic_name="no"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (m.FenceBrokerRecord(id=1, epoch=1), ErrorCode.STALE_BROKER_EPOCH),
        (m.BrokerRegistrationChangeRecord(broker_id=1), ErrorCode.STALE_BROKER_EPOCH),
        (m.RemoveAccessControlEntryRecord(id=TOPIC_ID), ErrorCode.INVALID_REQUEST),
        (m.BeginTransactionRecord(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=lambda v: getattr(v, "NAME", ""),
)
def test_a_record_that_contradicts_the_image_is_an_error(record: Any, code: ErrorCode) -> None:
    with pytest.raises(ApiException) as e:
        MetadataDelta(EMPTY_IMAGE).replay(record)
    assert e.value.code is code


def test_the_difference_of_two_images() -> None:
    old = image_of(TOPIC, partition(0), partition(1), register(1), register(2))
    new = image_of(
        m.PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=1, leader=2),
        m.TopicRecord(name="new", topic_id=OTHER_ID),
        m.UnregisterBrokerRecord(broker_id=2, broker_epoch=10),
        m.ConfigRecord(resource_type=2, resource_name="new", name="retention.ms", value="1"),
        on=old,
    )
    delta = MetadataDelta.between(old, new)
    assert delta.changed_topics.keys() == {TOPIC_ID, OTHER_ID}
    assert list(delta.changed_topics[TOPIC_ID].partition_changes) == [1]
    assert delta.changed_brokers == {2}
    assert delta.changed_configs == {(2, "new")}
    assert MetadataDelta.between(new, old).deleted_topics.keys() == {OTHER_ID}
