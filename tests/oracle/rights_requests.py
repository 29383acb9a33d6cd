"""A request of each API that needs a right, about the topic, group and transactional id of one case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oracle.rights_names import Build, Names
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.wire import messages as m
from ottla.wire.apis import ApiKey

_TOPIC, _BROKER, _GROUP = 2, 4, 32


def _produce(n: Names, *, by_id: bool = False, transactional: bool = False, txn: str | None = None) -> Any:
    request = m.ProduceRequest
    batch = build_batch(
        [Record(0, 1000, b"k", b"v", [])],
        base_offset=0,
        producer_id=7 if transactional else -1,
        producer_epoch=0 if transactional else -1,
        base_sequence=0 if transactional else -1,
        is_transactional=transactional,
    )
    partition = request.PartitionProduceData(index=0, records=batch)
    topic = request.TopicProduceData(partition_data=[partition])
    if by_id:
        topic.topic_id = n.topic_id
    else:
        topic.name = n.topic
    return request(acks=-1, timeout_ms=5000, topic_data=[topic], transactional_id=txn)


def _fetch(n: Names, *, by_id: bool) -> Any:
    request = m.FetchRequest
    topic = request.FetchTopic(partitions=[request.FetchPartition(partition=0, partition_max_bytes=1000)])
    if by_id:
        topic.topic_id = n.topic_id
    else:
        topic.topic = n.topic
    return request(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[topic])


def _follower_fetch(n: Names) -> Any:
    request = _fetch(n, by_id=False)
    request.replica_id = 5
    return request


def _list_offsets(n: Names) -> Any:
    request = m.ListOffsetsRequest
    partition = request.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [request.ListOffsetsTopic(name=name, partitions=[partition]) for name in (n.topic, n.missing)]
    return request(replica_id=-1, topics=topics)  # type: ignore[arg-type]


def _metadata(n: Names, *, by_id: bool = False, everything: bool = False, create: bool = False) -> Any:
    request = m.MetadataRequest
    if everything:
        topics = None
    elif by_id:
        topics = [request.MetadataRequestTopic(topic_id=n.topic_id, name=None)]
    else:
        topics = [request.MetadataRequestTopic(name=name) for name in (n.topic, n.missing)]
    return request(topics=topics, allow_auto_topic_creation=create, include_topic_authorized_operations=True)


def _cluster_metadata(n: Names) -> Any:
    return m.MetadataRequest(
        topics=[], allow_auto_topic_creation=False, include_cluster_authorized_operations=True
    )


def _create_topics(n: Names) -> Any:
    request = m.CreateTopicsRequest
    topics = [
        request.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in (n.topic, n.missing)
    ]
    return request(topics=topics, timeout_ms=5000, validate_only=True)


def _delete_topics(n: Names) -> Any:
    request = m.DeleteTopicsRequest
    named = [request.DeleteTopicState(name=name) for name in (n.topic, n.missing)]
    return request(topics=named, timeout_ms=5000)


def _delete_topic_by_id(n: Names) -> Any:
    request = m.DeleteTopicsRequest
    return request(topics=[request.DeleteTopicState(name=None, topic_id=n.topic_id)], timeout_ms=5000)


def _delete_records(n: Names) -> Any:
    request = m.DeleteRecordsRequest
    partition = request.DeleteRecordsPartition(partition_index=0, offset=0)
    topics = [request.DeleteRecordsTopic(name=name, partitions=[partition]) for name in (n.topic, n.missing)]
    return request(topics=topics, timeout_ms=5000)


def _epochs(n: Names) -> Any:
    request = m.OffsetForLeaderEpochRequest
    partition = request.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topics = [
        request.OffsetForLeaderTopic(topic=name, partitions=[partition]) for name in (n.topic, n.missing)
    ]
    return request(replica_id=-1, topics=topics)  # type: ignore[arg-type]


def _configs(owner: Any, resource: str, n: Names, **fields: Any) -> Any:
    kinds = ((_TOPIC, n.topic), (_TOPIC, n.missing), (_BROKER, "1"), (_GROUP, n.group))
    return [
        getattr(owner, resource)(resource_type=kind, resource_name=name, **fields) for kind, name in kinds
    ]


def _describe_configs(n: Names) -> Any:
    request = m.DescribeConfigsRequest
    keys = ["retention.ms", "consumer.session.timeout.ms"]
    return request(resources=_configs(request, "DescribeConfigsResource", n, configuration_keys=keys))


def _alter_configs(n: Names) -> Any:
    request = m.AlterConfigsRequest
    resources = [
        request.AlterConfigsResource(
            resource_type=_TOPIC,
            resource_name=name,
            configs=[request.AlterableConfig(name="retention.ms", value="1000000")],
        )
        for name in (n.topic, n.missing)
    ]
    return request(resources=resources, validate_only=True)


def _incremental(n: Names) -> Any:
    request = m.IncrementalAlterConfigsRequest

    def resource(kind: int, name: Any, key: str, value: str) -> Any:
        config = request.AlterableConfig(name=key, config_operation=0, value=value)
        return request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])

    return request(
        resources=[
            resource(_TOPIC, n.topic, "retention.ms", "1000000"),
            resource(_TOPIC, n.missing, "retention.ms", "1000000"),
            resource(_GROUP, n.group, "consumer.session.timeout.ms", "46000"),
            resource(_BROKER, "", "log.retention.ms", "100000000"),
        ],
        validate_only=True,
    )


def _create_partitions(n: Names) -> Any:
    request = m.CreatePartitionsRequest
    topics = [request.CreatePartitionsTopic(name=name, count=3) for name in (n.topic, n.missing)]
    return request(topics=topics, timeout_ms=5000, validate_only=True)


def _elect(n: Names) -> Any:
    request = m.ElectLeadersRequest
    return request(topic_partitions=[request.TopicPartitions(topic=n.topic, partitions=[0])], timeout_ms=5000)


def _reassign(n: Names) -> Any:
    request = m.AlterPartitionReassignmentsRequest
    partition = request.ReassignablePartition(partition_index=0, replicas=[1])  # type: ignore[list-item]
    return request(topics=[request.ReassignableTopic(name=n.topic, partitions=[partition])], timeout_ms=5000)


def _reassignments(n: Names) -> Any:
    request = m.ListPartitionReassignmentsRequest
    return request(
        topics=[request.ListPartitionReassignmentsTopics(name=n.topic, partition_indexes=[0])],
        timeout_ms=5000,
    )


def _describe_acls(n: Names) -> Any:
    return m.DescribeAclsRequest(
        resource_type_filter=_TOPIC,
        resource_name_filter="no-such-resource",
        pattern_type_filter=3,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def _create_acls(n: Names) -> Any:
    request = m.CreateAclsRequest
    acl = request.AclCreation(
        resource_type=_TOPIC,
        resource_name="made-by-a-case",
        resource_pattern_type=3,
        principal="User:nobody",
        host="*",
        operation=3,
        permission_type=3,
    )
    return request(creations=[acl])


def _delete_acls(n: Names) -> Any:
    request = m.DeleteAclsRequest
    nothing = request.DeleteAclsFilter(
        resource_type_filter=_TOPIC,
        resource_name_filter="no-such-resource",
        pattern_type_filter=3,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    return request(filters=[nothing])


def _producers(n: Names) -> Any:
    request = m.DescribeProducersRequest
    return request(
        topics=[request.TopicRequest(name=name, partition_indexes=[0]) for name in (n.topic, n.missing)]
    )


def _topic_partitions(n: Names) -> Any:
    request = m.DescribeTopicPartitionsRequest
    return request(topics=[request.TopicRequest(name=name) for name in (n.topic, n.missing)])


def _scram(n: Names) -> Any:
    request = m.AlterUserScramCredentialsRequest
    return request(deletions=[request.ScramCredentialDeletion(name="nobody-here", mechanism=1)])


def _quotas(n: Names) -> Any:
    request = m.AlterClientQuotasRequest
    entity = request.EntityData(entity_type="user", entity_name="nobody-here")
    change = request.OpData(key="producer_byte_rate", value=1000.0)
    return request(entries=[request.EntryData(entity=[entity], ops=[change])], validate_only=True)


def _describe_quotas(n: Names) -> Any:
    request = m.DescribeClientQuotasRequest
    component = request.ComponentData(entity_type="user", match_type=0, match="nobody-here")
    return request(components=[component], strict=True)


def _log_dirs(n: Names) -> Any:
    request = m.DescribeLogDirsRequest
    return request(topics=[request.DescribableLogDirTopic(topic=n.missing, partitions=[0])])


def _alter_log_dirs(n: Names) -> Any:
    request = m.AlterReplicaLogDirsRequest
    topic = request.AlterReplicaLogDirTopic(name=n.missing, partitions=[0])
    return request(dirs=[request.AlterReplicaLogDir(path="/no/such/directory", topics=[topic])])


def _features(n: Names) -> Any:
    request = m.UpdateFeaturesRequest
    update = request.FeatureUpdateKey(feature="no.such.feature", max_version_level=1, upgrade_type=1)
    return request(feature_updates=[update], timeout_ms=5000, validate_only=True)


DATA_REQUESTS: list[tuple[str, int, int, Build]] = [
    ("produce", ApiKey.PRODUCE, 11, _produce),
    ("produce by id", ApiKey.PRODUCE, 13, lambda n: _produce(n, by_id=True)),
    (
        "produce in a transaction",
        ApiKey.PRODUCE,
        11,
        lambda n: _produce(n, transactional=True, txn=n.transactional_id),
    ),
    (
        "produce a transactional batch without an id",
        ApiKey.PRODUCE,
        11,
        lambda n: _produce(n, transactional=True),
    ),
    ("fetch", ApiKey.FETCH, 12, lambda n: _fetch(n, by_id=False)),
    ("fetch by id", ApiKey.FETCH, 17, lambda n: _fetch(n, by_id=True)),
    ("fetch as a follower", ApiKey.FETCH, 12, _follower_fetch),
    ("list offsets", ApiKey.LIST_OFFSETS, 10, _list_offsets),
    ("metadata", ApiKey.METADATA, 13, _metadata),
    ("metadata by id", ApiKey.METADATA, 13, lambda n: _metadata(n, by_id=True)),
    ("metadata of all", ApiKey.METADATA, 12, lambda n: _metadata(n, everything=True)),
    ("metadata with creation", ApiKey.METADATA, 12, lambda n: _metadata(n, create=True)),
    ("metadata of the cluster", ApiKey.METADATA, 10, _cluster_metadata),
    ("create topics", ApiKey.CREATE_TOPICS, 7, _create_topics),
    ("create topics, old", ApiKey.CREATE_TOPICS, 4, _create_topics),
    ("delete topics", ApiKey.DELETE_TOPICS, 6, _delete_topics),
    ("delete topics by id", ApiKey.DELETE_TOPICS, 6, _delete_topic_by_id),
    ("delete records", ApiKey.DELETE_RECORDS, 2, _delete_records),
    ("leader epochs", ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, _epochs),
    ("describe acls", ApiKey.DESCRIBE_ACLS, 3, _describe_acls),
    ("create acls", ApiKey.CREATE_ACLS, 3, _create_acls),
    ("delete acls", ApiKey.DELETE_ACLS, 3, _delete_acls),
    ("describe configs", ApiKey.DESCRIBE_CONFIGS, 4, _describe_configs),
    ("alter configs", ApiKey.ALTER_CONFIGS, 2, _alter_configs),
    ("incremental alter configs", ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, _incremental),
    ("alter log dirs", ApiKey.ALTER_REPLICA_LOG_DIRS, 2, _alter_log_dirs),
    ("describe log dirs", ApiKey.DESCRIBE_LOG_DIRS, 4, _log_dirs),
    ("create partitions", ApiKey.CREATE_PARTITIONS, 3, _create_partitions),
    ("elect leaders", ApiKey.ELECT_LEADERS, 2, _elect),
    ("reassign", ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, _reassign),
    ("list reassignments", ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, _reassignments),
    ("describe quotas", ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, _describe_quotas),
    ("alter quotas", ApiKey.ALTER_CLIENT_QUOTAS, 1, _quotas),
    (
        "describe users",
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        lambda n: m.DescribeUserScramCredentialsRequest(users=[]),
    ),
    ("alter users", ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, _scram),
    ("update features", ApiKey.UPDATE_FEATURES, 2, _features),
    (
        "describe cluster",
        ApiKey.DESCRIBE_CLUSTER,
        2,
        lambda n: m.DescribeClusterRequest(include_cluster_authorized_operations=True),
    ),
    ("describe producers", ApiKey.DESCRIBE_PRODUCERS, 0, _producers),
    ("unregister broker", ApiKey.UNREGISTER_BROKER, 0, lambda n: m.UnregisterBrokerRequest(broker_id=77)),  # type: ignore[arg-type]
    (
        "list config resources",
        ApiKey.LIST_CONFIG_RESOURCES,
        1,
        lambda n: m.ListConfigResourcesRequest(resource_types=[16]),
    ),
    ("describe topic partitions", ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, _topic_partitions),
]
"""What it is, its API, the version to ask in, and the request."""


def _of_nodes() -> Iterator[tuple[str, int, int, Build]]:
    vote, begin, end = m.VoteRequest, m.BeginQuorumEpochRequest, m.EndQuorumEpochRequest
    name: Any = "__cluster_metadata"
    no_id: Any = 9
    yield (
        "fetch metadata",
        ApiKey.FETCH,
        17,
        lambda n: m.FetchRequest(replica_state=m.FetchRequest.ReplicaState(replica_id=no_id)),
    )
    yield (
        "vote",
        ApiKey.VOTE,
        2,
        lambda n: vote(
            cluster_id="another",
            topics=[vote.TopicData(topic_name=name, partitions=[vote.PartitionData(replica_id=no_id)])],
        ),
    )
    yield (
        "begin epoch",
        ApiKey.BEGIN_QUORUM_EPOCH,
        1,
        lambda n: begin(
            cluster_id="another",
            topics=[begin.TopicData(topic_name=name, partitions=[begin.PartitionData(leader_id=no_id)])],
        ),
    )
    yield (
        "end epoch",
        ApiKey.END_QUORUM_EPOCH,
        1,
        lambda n: end(
            cluster_id="another",
            topics=[end.TopicData(topic_name=name, partitions=[end.PartitionData(leader_id=no_id)])],
        ),
    )
    yield "describe quorum", ApiKey.DESCRIBE_QUORUM, 2, lambda n: m.DescribeQuorumRequest(topics=[])
    yield (
        "fetch snapshot",
        ApiKey.FETCH_SNAPSHOT,
        1,
        lambda n: m.FetchSnapshotRequest(cluster_id="another", replica_id=no_id),
    )
    yield (
        "register broker",
        ApiKey.BROKER_REGISTRATION,
        4,
        lambda n: m.BrokerRegistrationRequest(broker_id=no_id, cluster_id="another"),
    )
    yield "broker heartbeat", ApiKey.BROKER_HEARTBEAT, 1, lambda n: m.BrokerHeartbeatRequest(broker_id=no_id)
    yield (
        "allocate ids",
        ApiKey.ALLOCATE_PRODUCER_IDS,
        0,
        lambda n: m.AllocateProducerIdsRequest(broker_id=no_id),
    )
    yield "describe cluster", ApiKey.DESCRIBE_CLUSTER, 2, lambda n: m.DescribeClusterRequest(endpoint_type=2)
    yield (
        "assign directories",
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        0,
        lambda n: m.AssignReplicasToDirsRequest(broker_id=no_id),
    )
    yield "alter partition", ApiKey.ALTER_PARTITION, 3, lambda n: m.AlterPartitionRequest(broker_id=no_id)
    yield (
        "update voter",
        ApiKey.UPDATE_RAFT_VOTER,
        0,
        lambda n: m.UpdateRaftVoterRequest(cluster_id="another", voter_id=no_id),
    )
    yield (
        "add voter",
        ApiKey.ADD_RAFT_VOTER,
        0,
        lambda n: m.AddRaftVoterRequest(cluster_id="another", voter_id=no_id, timeout_ms=1000),
    )
    yield (
        "remove voter",
        ApiKey.REMOVE_RAFT_VOTER,
        0,
        lambda n: m.RemoveRaftVoterRequest(cluster_id="another", voter_id=no_id),
    )
    yield (
        "register controller",
        ApiKey.CONTROLLER_REGISTRATION,
        0,
        lambda n: m.ControllerRegistrationRequest(controller_id=no_id, incarnation_id=bytes(15) + b"i"),
    )
    yield (
        "envelope",
        ApiKey.ENVELOPE,
        0,
        lambda n: m.EnvelopeRequest(
            request_data=b"none", request_principal=b"\xff\xff", client_host_address=b"\x7f\0\0\1"
        ),
    )


NODE_REQUESTS = list(_of_nodes())
"""The same on a controller's listener."""
