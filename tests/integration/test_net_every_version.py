"""Every API that ApiVersions lists is asked in every version that it lists: each gives an answer of that version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from integration.controller_requests import CONTROLLER_REQUESTS
from integration.group_requests import GROUP_REQUESTS
from integration.share_requests import SHARE_REQUESTS
from integration.txn_requests import TXN_REQUESTS
from ottla.errors import ErrorCode
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire import messages
from ottla.wire.apis import API_VERSIONS, ApiKey

TOPIC = "every-version"
MISSING = "is-not-there"


class Asked:
    """What a request is made for: a topic that is there, with its id."""

    def __init__(self, version: int, topic_id: bytes, name: str) -> None:
        self.version = version
        self.topic_id = topic_id
        self.name = name


def _produce(asked: Asked) -> Any:
    request = messages.ProduceRequest
    batch = build_batch([Record(0, 1000, b"k", b"v", [])], base_offset=0)
    partition = request.PartitionProduceData(index=0, records=batch)
    topic = request.TopicProduceData(partition_data=[partition])
    if asked.version >= 13:
        topic.topic_id = asked.topic_id
    else:
        topic.name = asked.name
    return request(acks=-1, timeout_ms=60_000, topic_data=[topic])


def _fetch(asked: Asked) -> Any:
    request = messages.FetchRequest
    topic = request.FetchTopic(partitions=[request.FetchPartition(partition=0, partition_max_bytes=1000)])
    if asked.version >= 13:
        topic.topic_id = asked.topic_id
    else:
        topic.topic = asked.name
    return request(max_wait_ms=10, min_bytes=1, max_bytes=1000, topics=[topic])


def _list_offsets(asked: Asked) -> Any:
    request = messages.ListOffsetsRequest
    partitions = [request.ListOffsetsPartition(partition_index=0, timestamp=ts) for ts in (-1,)]
    return request(replica_id=-1, topics=[request.ListOffsetsTopic(name=asked.name, partitions=partitions)])


def _metadata(asked: Asked) -> Any:
    topic = messages.MetadataRequest.MetadataRequestTopic(name=asked.name)
    request = messages.MetadataRequest(topics=[topic])
    if asked.version >= 4:
        request.allow_auto_topic_creation = False
    if asked.version >= 8:
        request.include_topic_authorized_operations = True
    if 8 <= asked.version <= 10:
        request.include_cluster_authorized_operations = True
    return request


def _find_coordinator(asked: Asked) -> Any:
    if asked.version >= 4:
        return messages.FindCoordinatorRequest(coordinator_keys=["a", "b"])
    return messages.FindCoordinatorRequest(key="a")


def _api_versions(asked: Asked) -> Any:
    if asked.version >= 3:
        return messages.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    return messages.ApiVersionsRequest()


def _create_topics(asked: Asked) -> Any:
    request = messages.CreateTopicsRequest
    topics = [
        request.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in (f"{asked.name}-{asked.version}", asked.name, "in/valid")
    ]
    return request(topics=topics, timeout_ms=60_000)


def _delete_topics(asked: Asked) -> Any:
    request = messages.DeleteTopicsRequest
    if asked.version >= 6:
        return request(topics=[request.DeleteTopicState(name=MISSING)], timeout_ms=60_000)
    return request(topic_names=[MISSING], timeout_ms=60_000)


def _delete_records(asked: Asked) -> Any:
    request = messages.DeleteRecordsRequest
    partition = request.DeleteRecordsPartition(partition_index=0, offset=0)
    return request(
        topics=[request.DeleteRecordsTopic(name=asked.name, partitions=[partition])], timeout_ms=60_000
    )


def _epochs(asked: Asked) -> Any:
    request = messages.OffsetForLeaderEpochRequest
    partition = request.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = request.OffsetForLeaderTopic(topic=asked.name, partitions=[partition])
    return request(topics=[topic]) if asked.version < 3 else request(replica_id=-1, topics=[topic])


def _resource(owner: Any, asked: Asked, **fields: Any) -> Any:
    return owner(resource_type=2, resource_name=asked.name, **fields)


def _describe_configs(asked: Asked) -> Any:
    request = messages.DescribeConfigsRequest
    resources = [
        _resource(request.DescribeConfigsResource, asked, configuration_keys=None),
        request.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None),
    ]
    return request(resources=resources, include_synonyms=True)


def _alter_configs(asked: Asked) -> Any:
    request = messages.AlterConfigsRequest
    config = request.AlterableConfig(name="retention.ms", value="1000000")
    return request(resources=[_resource(request.AlterConfigsResource, asked, configs=[config])])


def _incremental(asked: Asked) -> Any:
    request = messages.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name="retention.ms", config_operation=0, value="1000000")
    return request(resources=[_resource(request.AlterConfigsResource, asked, configs=[config])])


def _alter_dirs(asked: Asked) -> Any:
    request = messages.AlterReplicaLogDirsRequest
    topic = request.AlterReplicaLogDirTopic(name=asked.name, partitions=[0])
    return request(dirs=[request.AlterReplicaLogDir(path="/nowhere", topics=[topic])])


def _create_partitions(asked: Asked) -> Any:
    request = messages.CreatePartitionsRequest
    topic = request.CreatePartitionsTopic(name=asked.name, count=1, assignments=None)
    return request(topics=[topic], timeout_ms=60_000, validate_only=True)


def _describe_quorum(asked: Asked) -> Any:
    request = messages.DescribeQuorumRequest
    partition = request.PartitionData(partition_index=0)
    return request(topics=[request.TopicData(topic_name="__cluster_metadata", partitions=[partition])])


def _describe_producers(asked: Asked) -> Any:
    request = messages.DescribeProducersRequest
    return request(topics=[request.TopicRequest(name=asked.name, partition_indexes=[0])])


def _describe_topics(asked: Asked) -> Any:
    request = messages.DescribeTopicPartitionsRequest
    return request(topics=[request.TopicRequest(name=asked.name)])


def _update_features(asked: Asked) -> Any:
    request = messages.UpdateFeaturesRequest
    update = request.FeatureUpdateKey(feature="no.such.feature", max_version_level=1)
    if asked.version >= 1:
        update.upgrade_type = 1
    return request(feature_updates=[update], timeout_ms=60_000)


REQUESTS: dict[int, Callable[[Asked], Any]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.INIT_PRODUCER_ID: lambda asked: messages.InitProducerIdRequest(transaction_timeout_ms=1000),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _epochs,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: lambda asked: messages.DescribeLogDirsRequest(topics=None),
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental,
    ApiKey.DESCRIBE_QUORUM: _describe_quorum,
    ApiKey.UPDATE_FEATURES: _update_features,
    ApiKey.DESCRIBE_CLUSTER: lambda asked: messages.DescribeClusterRequest(),
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.UNREGISTER_BROKER: lambda asked: messages.UnregisterBrokerRequest(broker_id=77),
    ApiKey.LIST_CONFIG_RESOURCES: lambda asked: messages.ListConfigResourcesRequest(),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topics,
    ApiKey.SASL_HANDSHAKE: lambda asked: messages.SaslHandshakeRequest(mechanism="PLAIN"),
    ApiKey.SASL_AUTHENTICATE: lambda asked: messages.SaslAuthenticateRequest(auth_bytes=b"x"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda asked: messages.DescribeUserScramCredentialsRequest(),
    ApiKey.DESCRIBE_ACLS: lambda asked: messages.DescribeAclsRequest(resource_type_filter=1),
    ApiKey.CREATE_ACLS: lambda asked: messages.CreateAclsRequest(),
    ApiKey.DELETE_ACLS: lambda asked: messages.DeleteAclsRequest(),
    ApiKey.CREATE_DELEGATION_TOKEN: lambda asked: messages.CreateDelegationTokenRequest(),
    ApiKey.RENEW_DELEGATION_TOKEN: lambda asked: messages.RenewDelegationTokenRequest(hmac=b"x"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: lambda asked: messages.ExpireDelegationTokenRequest(hmac=b"x"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: lambda asked: messages.DescribeDelegationTokenRequest(),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda asked: messages.DescribeClientQuotasRequest(),
    ApiKey.ALTER_CLIENT_QUOTAS: lambda asked: messages.AlterClientQuotasRequest(),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda asked: messages.AlterUserScramCredentialsRequest(),
    **CONTROLLER_REQUESTS,
    **GROUP_REQUESTS,
    **SHARE_REQUESTS,
    **TXN_REQUESTS,
}


@pytest.fixture(scope="module")
def topic_id(broker: BrokerProcess) -> bytes:
    request = messages.CreateTopicsRequest
    topic = request.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    with RawClient(broker.host, broker.port) as client:
        [created] = client.ask(request(topics=[topic], timeout_ms=60_000), 7).topics
    assert created.error_code == ErrorCode.NONE
    found: bytes = created.topic_id
    return found


def served(client: RawClient) -> list[tuple[int, int]]:
    """Every (API, version) that is answered: Produce is listed from 0 but, as in Kafka, answered from 3."""
    listed = client.ask(messages.ApiVersionsRequest(), 0).api_keys
    return [
        (api.api_key, version)
        for api in listed
        for version in range(max(api.min_version, API_VERSIONS[api.api_key].min_version), api.max_version + 1)
    ]


def test_all_that_is_listed_is_asked_for_here(broker: BrokerProcess) -> None:
    with RawClient(broker.host, broker.port) as client:
        assert {key for key, _ in served(client)} == set(REQUESTS)


@pytest.mark.parametrize("name", [TOPIC, MISSING])
def test_every_version_has_its_answer(broker: BrokerProcess, topic_id: bytes, name: str) -> None:
    failed = []
    with RawClient(broker.host, broker.port) as client:
        everything = served(client)
    for key, version in everything:
        request = REQUESTS[key](Asked(version, topic_id if name == TOPIC else bytes(range(16)), name))
        with RawClient(broker.host, broker.port) as client:
            try:
                answer = client.ask(request, version)
            except ConnectionError as error:
                failed.append(f"{ApiKey(key).name} {version}: {error}")
            else:
                if getattr(answer, "error_code", 0) == ErrorCode.UNKNOWN_SERVER_ERROR:
                    failed.append(f"{ApiKey(key).name} {version}: an unexpected error")
    assert not failed, "\n".join([*failed, broker.log[-3000:]])
