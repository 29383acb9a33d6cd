"""The table of Kafka's APIs: keys, names and the versions that Kafka 4.3 knows.

`ottla.api` declares which of them this broker serves; the schema table defines the messages.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ApiKey(IntEnum):
    """Every API of Kafka 4.3, the removed ones included."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class ApiVersions(NamedTuple):
    """The versions of one API in Kafka 4.3. A removed API has `max_version` -1."""

    key: ApiKey
    name: str
    min_version: int
    max_version: int
    max_stable_version: int
    cluster_action: bool
    """Served to brokers and controllers only."""
    forwardable: bool
    """A broker forwards it to the controller."""


_ROWS: tuple[tuple[str, int, int, int, str], ...] = (
    # name, min, max, latest stable; c: cluster action, f: forwardable
    ("Produce", 3, 13, 13, ""),
    ("Fetch", 4, 18, 18, ""),
    ("ListOffsets", 1, 11, 11, ""),
    ("Metadata", 0, 13, 13, ""),
    ("LeaderAndIsr", 0, -1, -1, "c"),
    ("StopReplica", 0, -1, -1, "c"),
    ("UpdateMetadata", 0, -1, -1, "c"),
    ("ControlledShutdown", 0, -1, -1, "c"),
    ("OffsetCommit", 2, 10, 10, ""),
    ("OffsetFetch", 1, 10, 10, ""),
    ("FindCoordinator", 0, 6, 6, ""),
    ("JoinGroup", 0, 9, 9, ""),
    ("Heartbeat", 0, 4, 4, ""),
    ("LeaveGroup", 0, 5, 5, ""),
    ("SyncGroup", 0, 5, 5, ""),
    ("DescribeGroups", 0, 6, 6, ""),
    ("ListGroups", 0, 5, 5, ""),
    ("SaslHandshake", 0, 1, 1, ""),
    ("ApiVersions", 0, 4, 4, ""),
    ("CreateTopics", 2, 7, 7, "f"),
    ("DeleteTopics", 1, 6, 6, "f"),
    ("DeleteRecords", 0, 2, 2, ""),
    ("InitProducerId", 0, 6, 5, ""),
    ("OffsetForLeaderEpoch", 2, 4, 4, ""),
    ("AddPartitionsToTxn", 0, 5, 5, ""),
    ("AddOffsetsToTxn", 0, 4, 4, ""),
    ("EndTxn", 0, 5, 5, ""),
    ("WriteTxnMarkers", 1, 2, 2, "c"),
    ("TxnOffsetCommit", 0, 5, 5, ""),
    ("DescribeAcls", 1, 3, 3, ""),
    ("CreateAcls", 1, 3, 3, "f"),
    ("DeleteAcls", 1, 3, 3, "f"),
    ("DescribeConfigs", 1, 4, 4, ""),
    ("AlterConfigs", 0, 2, 2, "f"),
    ("AlterReplicaLogDirs", 1, 2, 2, ""),
    ("DescribeLogDirs", 1, 5, 5, ""),
    ("SaslAuthenticate", 0, 2, 2, ""),
    ("CreatePartitions", 0, 3, 3, "f"),
    ("CreateDelegationToken", 1, 3, 3, "f"),
    ("RenewDelegationToken", 1, 2, 2, "f"),
    ("ExpireDelegationToken", 1, 2, 2, "f"),
    ("DescribeDelegationToken", 1, 3, 3, ""),
    ("DeleteGroups", 0, 2, 2, ""),
    ("ElectLeaders", 0, 2, 2, "f"),
    ("IncrementalAlterConfigs", 0, 1, 1, "f"),
    ("AlterPartitionReassignments", 0, 1, 1, "f"),
    ("ListPartitionReassignments", 0, 0, 0, "f"),
    ("OffsetDelete", 0, 0, 0, ""),
    ("DescribeClientQuotas", 0, 1, 1, ""),
    ("AlterClientQuotas", 0, 1, 1, "f"),
    ("DescribeUserScramCredentials", 0, 0, 0, ""),
    ("AlterUserScramCredentials", 0, 0, 0, "f"),
    ("Vote", 0, 2, 2, "c"),
    ("BeginQuorumEpoch", 0, 1, 1, "c"),
    ("EndQuorumEpoch", 0, 1, 1, "c"),
    ("DescribeQuorum", 0, 2, 2, "cf"),
    ("AlterPartition", 2, 3, 3, "c"),
    ("UpdateFeatures", 0, 2, 2, "cf"),
    ("Envelope", 0, 0, 0, "c"),
    ("FetchSnapshot", 0, 1, 1, ""),
    ("DescribeCluster", 0, 2, 2, ""),
    ("DescribeProducers", 0, 0, 0, ""),
    ("BrokerRegistration", 0, 4, 4, "c"),
    ("BrokerHeartbeat", 0, 2, 2, "c"),
    ("UnregisterBroker", 0, 0, 0, "f"),
    ("DescribeTransactions", 0, 0, 0, ""),
    ("ListTransactions", 0, 2, 2, ""),
    ("AllocateProducerIds", 0, 0, 0, "cf"),
    ("ConsumerGroupHeartbeat", 0, 1, 1, ""),
    ("ConsumerGroupDescribe", 0, 1, 1, ""),
    ("ControllerRegistration", 0, 0, 0, ""),
    ("GetTelemetrySubscriptions", 0, 0, 0, ""),
    ("PushTelemetry", 0, 0, 0, ""),
    ("AssignReplicasToDirs", 0, 0, 0, ""),
    ("ListConfigResources", 0, 1, 1, ""),
    ("DescribeTopicPartitions", 0, 0, 0, ""),
    ("ShareGroupHeartbeat", 1, 1, 1, ""),
    ("ShareGroupDescribe", 1, 1, 1, ""),
    ("ShareFetch", 1, 2, 2, ""),
    ("ShareAcknowledge", 1, 2, 2, ""),
    ("AddRaftVoter", 0, 1, 1, "f"),
    ("RemoveRaftVoter", 0, 0, 0, "f"),
    ("UpdateRaftVoter", 0, 0, 0, ""),
    ("InitializeShareGroupState", 0, 0, 0, "c"),
    ("ReadShareGroupState", 0, 0, 0, "c"),
    ("WriteShareGroupState", 0, 1, 1, "c"),
    ("DeleteShareGroupState", 0, 0, 0, "c"),
    ("ReadShareGroupStateSummary", 0, 1, 1, "c"),
    ("StreamsGroupHeartbeat", 0, 0, 0, ""),
    ("StreamsGroupDescribe", 0, 0, 0, ""),
    ("DescribeShareGroupOffsets", 0, 1, 1, ""),
    ("AlterShareGroupOffsets", 0, 0, 0, ""),
    ("DeleteShareGroupOffsets", 0, 0, 0, ""),
)

API_VERSIONS: dict[int, ApiVersions] = {
    key: ApiVersions(ApiKey(key), name, low, high, stable, "c" in flags, "f" in flags)
    for key, (name, low, high, stable, flags) in enumerate(_ROWS)
}
