"""The table of metrics: every family that a node shows, with its bean in Apache Kafka and its help text.

`ottla.metrics.families` spells the names; the readers in `ottla.metrics.collect` and beside it take the values.
"""

from __future__ import annotations

from typing import Final

from ottla.metrics.families import Family, Kind


def _family(domain: str, type: str, kind: Kind) -> _Bean:
    return _Bean(domain, type, kind)


class _Bean:
    """Makes the families of one bean."""

    def __init__(self, domain: str, type: str, kind: Kind) -> None:
        self._domain, self._type, self._kind = domain, type, kind

    def __call__(self, name: str, help: str, kind: Kind | None = None) -> Family:
        return Family(self._domain, self._type, name, kind or self._kind, help)


def _own(name: str, help: str, kind: Kind = Kind.PLAIN_GAUGE) -> Family:
    return Family("", "", name, kind, help)


# -- topics: with a topic's label, and without one for the whole broker

_topic = _family("kafka.server", "BrokerTopicMetrics", Kind.METER)
TOPIC_FAMILIES: Final = {
    "messages_in": _topic("MessagesInPerSec", "Records appended by leaders on this broker."),
    "bytes_in": _topic("BytesInPerSec", "Bytes of record batches appended by leaders on this broker."),
    "bytes_out": _topic("BytesOutPerSec", "Bytes of record batches sent to consumers."),
    "bytes_rejected": _topic("BytesRejectedPerSec", "Bytes of record batches that were too large."),
    "produces": _topic(
        "TotalProduceRequestsPerSec", "Partitions in Produce requests, and coordinators' appends."
    ),
    "fetches": _topic("TotalFetchRequestsPerSec", "Partitions that Fetch requests looked at."),
    "failed_produces": _topic("FailedProduceRequestsPerSec", "Partitions whose append failed unexpectedly."),
    "failed_fetches": _topic("FailedFetchRequestsPerSec", "Partitions whose read failed unexpectedly."),
}
"""By attribute of `TopicCounters`."""
BROKER_FAMILIES: Final = {
    "replication_bytes_in": _topic(
        "ReplicationBytesInPerSec", "Bytes fetched from leaders on other brokers."
    ),
    "replication_bytes_out": _topic("ReplicationBytesOutPerSec", "Bytes sent to followers."),
}
CONVERSIONS: Final = (
    _topic("ProduceMessageConversionsPerSec", "Always 0: records are kept in the format in which they come."),
    _topic(
        "FetchMessageConversionsPerSec", "Always 0: records are sent in the format in which they are kept."
    ),
)

# -- replicas

_replicas = _family("kafka.server", "ReplicaManager", Kind.GAUGE)
LEADER_COUNT: Final = _replicas("LeaderCount", "Partitions that this broker leads.")
PARTITION_COUNT: Final = _replicas("PartitionCount", "Partitions with a replica on this broker.")
UNDER_REPLICATED: Final = _replicas("UnderReplicatedPartitions", "Led partitions with replicas out of sync.")
UNDER_MIN_ISR: Final = _replicas("UnderMinIsrPartitionCount", "Led partitions below min.insync.replicas.")
AT_MIN_ISR: Final = _replicas("AtMinIsrPartitionCount", "Led partitions with exactly min.insync.replicas.")
OFFLINE_REPLICAS: Final = _replicas("OfflineReplicaCount", "Replicas here whose log directory has failed.")
REASSIGNING: Final = _replicas("ReassigningPartitions", "Led partitions that are being reassigned.")
ISR_SHRINKS: Final = _replicas("IsrShrinksPerSec", "In-sync sets that became smaller.", Kind.METER)
ISR_EXPANDS: Final = _replicas("IsrExpandsPerSec", "In-sync sets that became larger.", Kind.METER)
FAILED_ISR_UPDATES: Final = _replicas(
    "FailedIsrUpdatesPerSec", "In-sync set changes that were refused.", Kind.METER
)

_partition = _family("kafka.cluster", "Partition", Kind.GAUGE)
PARTITION_UNDER_REPLICATED: Final = _partition(
    "UnderReplicated", "1 if replicas of a led partition are out of sync."
)
PARTITION_ISR: Final = _partition("InSyncReplicasCount", "In-sync replicas of a led partition, else 0.")
PARTITION_REPLICAS: Final = _partition("ReplicasCount", "Replicas of a led partition, else 0.")
PARTITION_UNDER_MIN_ISR: Final = _partition(
    "UnderMinIsr", "1 if a led partition is below min.insync.replicas."
)
PARTITION_AT_MIN_ISR: Final = _partition("AtMinIsr", "1 if a led partition has exactly min.insync.replicas.")

_log = _family("kafka.log", "Log", Kind.GAUGE)
LOG_SIZE: Final = _log("Size", "Bytes of a replica's log.")
LOG_START: Final = _log("LogStartOffset", "The first offset of a replica's log.")
LOG_END: Final = _log("LogEndOffset", "The offset after the last record of a replica's log.")

_log_manager = _family("kafka.log", "LogManager", Kind.GAUGE)
OFFLINE_DIRECTORIES: Final = _log_manager("OfflineLogDirectoryCount", "Log directories that have failed.")
DIRECTORY_OFFLINE: Final = _log_manager("LogDirectoryOffline", "1 if a log directory has failed.")

_fetchers = _family("kafka.server", "ReplicaFetcherManager", Kind.GAUGE)
MAX_LAG: Final = _fetchers("MaxLag", "The most committed records that a followed partition lacks.")
MIN_FETCH_RATE: Final = _fetchers(
    "MinFetchRate", "The lowest rate of Fetch requests to a leader, per second."
)
FAILED_PARTITIONS: Final = _fetchers(
    "FailedPartitionsCount", "Followed partitions that cannot be fetched now."
)

_sessions = _family("kafka.server", "FetchSessionCache", Kind.GAUGE)
FETCH_SESSIONS: Final = _sessions("NumIncrementalFetchSessions", "Fetch sessions that are kept.")
FETCH_SESSION_PARTITIONS: Final = _sessions("NumIncrementalFetchPartitionsCached", "Their partitions.")
FETCH_SESSION_EVICTIONS: Final = _sessions(
    "IncrementalFetchSessionEvictionsPerSec", "Sessions that made room for others.", Kind.METER
)

_purgatory = _family("kafka.server", "DelayedOperationPurgatory", Kind.GAUGE)
DELAYED_OPERATIONS: Final = _purgatory(
    "NumDelayedOperations", "Requests that wait for an event at a partition."
)
PURGATORY_SIZE: Final = _purgatory("PurgatorySize", "Requests that wait for an event at a partition.")

# -- network

_request = _family("kafka.network", "RequestMetrics", Kind.TIMES)
REQUESTS: Final = _request("RequestsPerSec", "Requests that were answered.", Kind.METER)
ERRORS: Final = _request(
    "ErrorsPerSec", "Error codes in responses; NONE counts responses without one.", Kind.METER
)
TOTAL_TIME: Final = _request(
    "TotalTimeMs", "From a request's bytes to its response's, over the last minutes."
)
QUEUE_TIME: Final = _request("RequestQueueTimeMs", "Until the handler begins; one request in 64.")
LOCAL_TIME: Final = _request("LocalTimeMs", "The handler's own time; one request in 64.")
REMOTE_TIME: Final = _request("RemoteTimeMs", "Waiting for replicas, records or threads; one request in 64.")
RESPONSE_QUEUE_TIME: Final = _request(
    "ResponseQueueTimeMs", "Waiting for earlier responses; one request in 64."
)
SEND_TIME: Final = _request("ResponseSendTimeMs", "Handing the response to the system; one request in 64.")

NETWORK_IDLE: Final = _family("kafka.network", "SocketServer", Kind.PERCENT)(
    "NetworkProcessorAvgIdlePercent", "The share of time in which the event loop had nothing to do."
)
HANDLER_IDLE: Final = _family("kafka.server", "KafkaRequestHandlerPool", Kind.IDLE_METER)(
    "RequestHandlerAvgIdlePercent", "The same share: one event loop reads, handles and writes."
)
_channel = _family("kafka.network", "RequestChannel", Kind.GAUGE)
REQUEST_QUEUE: Final = _channel("RequestQueueSize", "Requests that wait for the write gate.")
RESPONSE_QUEUE: Final = _channel("ResponseQueueSize", "Requests that are taken and not answered yet.")

_sockets = _family("kafka.server", "socket-server-metrics", Kind.ATTRIBUTE)
CONNECTIONS: Final = _sockets("connection-count", "Open connections of a listener.")
CONNECTIONS_CREATED: Final = _sockets("connection-creation-total", "Connections that were accepted.")
CONNECTIONS_CLOSED: Final = _sockets("connection-close-total", "Connections that were closed.")
CREATION_RATE: Final = _sockets("connection-creation-rate", "Connections accepted per second, lately.")
CLOSE_RATE: Final = _sockets("connection-close-rate", "Connections closed per second, lately.")
INCOMING_BYTES: Final = _sockets("incoming-byte-total", "Bytes that were read.")
OUTGOING_BYTES: Final = _sockets("outgoing-byte-total", "Bytes of responses.")
RESPONSES: Final = _sockets("response-total", "Responses that were written.")
CLIENT_SOFTWARE: Final = _sockets("connections", "Open connections by the client's library and its version.")
ACCEPTOR_BLOCKED: Final = _family("kafka.network", "Acceptor", Kind.PERCENT)(
    "AcceptorBlockedPercent", "Always 0: accepted connections wait for no thread."
)

_WAITS = "How long clients with a {} quota have to wait, on average lately, in ms."


def _quota(bean: str, rate: str, text: str) -> tuple[Family, Family]:
    """What clients with a quota use, and how long they have to wait."""
    family = _family("kafka.server", bean, Kind.ATTRIBUTE)
    return family(rate, text), family("throttle-time", _WAITS.format(bean.lower()))


_QUOTAS: Final = {
    "producer_byte_rate": _quota("Produce", "byte-rate", "Bytes per second of clients with a produce quota."),
    "consumer_byte_rate": _quota("Fetch", "byte-rate", "Bytes per second of clients with a fetch quota."),
    "request_percentage": _quota(
        "Request", "request-time", "Percent of time of clients with a request quota."
    ),
}
"""By the key of the quota."""
QUOTAS: Final = {key: rate for key, (rate, _) in _QUOTAS.items()}
THROTTLE_TIMES: Final = {key: wait for key, (_, wait) in _QUOTAS.items()}

# -- controller and quorum

_controller = _family("kafka.controller", "KafkaController", Kind.GAUGE)
ACTIVE_CONTROLLER: Final = _controller("ActiveControllerCount", "1 on the active controller.")
OFFLINE_PARTITIONS: Final = _controller(
    "OfflinePartitionsCount", "Partitions of the cluster without a leader."
)
PREFERRED_IMBALANCE: Final = _controller(
    "PreferredReplicaImbalanceCount", "Partitions of the cluster not led by their first replica."
)
GLOBAL_TOPICS: Final = _controller("GlobalTopicCount", "Topics of the cluster.")
GLOBAL_PARTITIONS: Final = _controller("GlobalPartitionCount", "Partitions of the cluster.")
ACTIVE_BROKERS: Final = _controller("ActiveBrokerCount", "Registered brokers that are not fenced.")
FENCED_BROKERS: Final = _controller("FencedBrokerCount", "Registered brokers that are fenced.")
METADATA_ERRORS: Final = _controller("MetadataErrorCount", "Metadata records that could not be applied.")
LAST_APPLIED: Final = _controller("LastAppliedRecordOffset", "The newest metadata record in force here.")
LAST_APPLIED_LAG: Final = _controller("LastAppliedRecordLagMs", "The age of that record; 0 on the leader.")
UNCLEAN_ELECTIONS: Final = _family("kafka.controller", "ControllerStats", Kind.METER)(
    "UncleanLeaderElectionsPerSec", "Leaders that were elected out of sync."
)

_raft = _family("kafka.server", "raft-metrics", Kind.ATTRIBUTE)
RAFT_STATE: Final = _raft("current-state", "The state of this replica of the metadata log.", Kind.STATE)
RAFT_LEADER: Final = _raft("current-leader", "The leader of the metadata quorum; -1 if it is unknown.")
RAFT_VOTE: Final = _raft("current-vote", "The voter that got this node's vote in the epoch; -1 for none.")
RAFT_EPOCH: Final = _raft("current-epoch", "The epoch of the quorum.")
RAFT_HIGH_WATERMARK: Final = _raft(
    "high-watermark", "The end of what is committed, as far as this node knows."
)
RAFT_LOG_END: Final = _raft("log-end-offset", "The end of this node's metadata log.")
RAFT_LOG_END_EPOCH: Final = _raft("log-end-epoch", "The epoch of its last record.")
RAFT_APPEND_RATE: Final = _raft("append-records-rate", "Records appended per second as leader, lately.")
RAFT_FETCH_RATE: Final = _raft("fetch-records-rate", "Records fetched per second as follower, lately.")
RAFT_COMMIT_AVG: Final = _raft("commit-latency-avg", "Milliseconds from append to commit, lately.")
RAFT_COMMIT_MAX: Final = _raft("commit-latency-max", "The longest of them, in milliseconds.")
RAFT_ELECTION_AVG: Final = _raft("election-latency-avg", "Milliseconds without a leader, on average.")
RAFT_ELECTION_MAX: Final = _raft(
    "election-latency-max", "The longest time without a leader, in milliseconds."
)
RAFT_VOTERS: Final = _raft("number-of-voters", "Voters of the quorum.")
RAFT_OBSERVERS: Final = _raft("number-of-observers", "Replicas without a vote; known to the leader.")

_raft_channel = _family("kafka.server", "raft-channel-metrics", Kind.ATTRIBUTE)
RAFT_BYTES_IN: Final = _raft_channel("incoming-byte-total", "Bytes of other voters' responses.")
RAFT_BYTES_OUT: Final = _raft_channel("outgoing-byte-total", "Bytes of requests to other voters.")
RAFT_REQUESTS: Final = _raft_channel("request-total", "Requests to other voters.")
RAFT_RESPONSES: Final = _raft_channel("response-total", "Responses of other voters.")

_metadata = _family("kafka.server", "broker-metadata-metrics", Kind.ATTRIBUTE)
METADATA_OFFSET: Final = _metadata("last-applied-record-offset", "The newest metadata record in force here.")
METADATA_LAG: Final = _metadata("last-applied-record-lag-ms", "The age of that record; 0 on the leader.")

_server = _family("kafka.server", "KafkaServer", Kind.GAUGE)
BROKER_STATE: Final = _server(
    "BrokerState", "0 not running, 1 starting, 2 recovery, 3 running, 6 and 7 stopping."
)
DISK_READ: Final = _server("linux-disk-read-bytes", "Bytes that this process had read from disks.")
DISK_WRITE: Final = _server("linux-disk-write-bytes", "Bytes that this process had written to disks.")

# -- coordinators

_groups = _family("kafka.coordinator.group", "GroupMetadataManager", Kind.GAUGE)
GROUPS: Final = _groups("NumGroups", "Groups that this broker coordinates.")
OFFSETS: Final = _groups("NumOffsets", "Committed offsets that this broker holds.")
GROUP_STATES: Final = {
    "PreparingRebalance": _groups("NumGroupsPreparingRebalance", "Classic groups whose members are joining."),
    "CompletingRebalance": _groups(
        "NumGroupsCompletingRebalance", "Classic groups that wait for an assignment."
    ),
    "Stable": _groups("NumGroupsStable", "Classic groups with an assignment."),
    "Dead": _groups("NumGroupsDead", "Classic groups that are being removed."),
    "Empty": _groups("NumGroupsEmpty", "Classic groups without members."),
}
_group_types = _family("kafka.server", "group-coordinator-metrics", Kind.ATTRIBUTE)
GROUP_COUNT: Final = _group_types("group-count", "Groups by protocol.")
TYPED_GROUP_COUNT: Final = {
    "consumer": _group_types("consumer-group-count", "Consumer groups by state."),
    "share": _group_types("share-group-count", "Share groups by state."),
    "streams": _group_types("streams-group-count", "Streams groups by state."),
}
_transaction_types = _family("kafka.server", "transaction-coordinator-metrics", Kind.ATTRIBUTE)
_LOAD_TIMES = ("How long partitions took that were loaded in the last minute, {} in ms.", ("avg", "max"))
GROUP_LOAD_TIMES: Final = {
    word: _group_types(f"partition-load-time-{word}", _LOAD_TIMES[0].format(word)) for word in _LOAD_TIMES[1]
}
TRANSACTION_LOAD_TIMES: Final = {
    word: _transaction_types(f"partition-load-time-{word}", _LOAD_TIMES[0].format(word))
    for word in _LOAD_TIMES[1]
}
_markers = _family("kafka.coordinator.transaction", "TransactionMarkerChannelManager", Kind.GAUGE)
PENDING_MARKERS: Final = _markers(
    "PendingCompletionTransactionCount", "Decided transactions without all markers."
)
TRANSACTIONS: Final = _own("ottla_transactions", "Transactional ids that this broker coordinates, by state.")

# -- the process: names of Prometheus' client libraries, and of the JVM's for the panels that ask for them

PROCESS_CPU: Final = _own("process_cpu_seconds_total", "CPU time of this process.", Kind.PLAIN_COUNTER)
PROCESS_START: Final = _own("process_start_time_seconds", "When this process started, since the epoch.")
PROCESS_RESIDENT: Final = _own("process_resident_memory_bytes", "Resident memory.")
PROCESS_VIRTUAL: Final = _own("process_virtual_memory_bytes", "Virtual memory.")
PROCESS_FDS: Final = _own("process_open_fds", "Open file descriptors.")
PROCESS_MAX_FDS: Final = _own("process_max_fds", "The limit on open file descriptors.")
JVM_MEMORY: Final = _own(
    "jvm_memory_used_bytes", "There is no JVM: area=heap is this process's resident memory."
)
JVM_MEMORY_MAX: Final = _own(
    "jvm_memory_bytes_max",
    "There is no JVM: the memory that this process may take, by its cgroup or the machine.",
)
JVM_GC: Final = _own(
    "jvm_gc_collection_seconds", "There is no JVM: runs of Python's garbage collector.", Kind.PLAIN_SUMMARY
)
JVM_THREADS: Final = _own("jvm_threads_current", "There is no JVM: threads of this process.")

# -- Ottla's own

STALLS: Final = _own(
    "ottla_event_loop_stall_seconds", "Delays of the event loop of 20 ms and more.", Kind.PLAIN_HISTOGRAM
)
LONGEST_STALL: Final = _own("ottla_event_loop_longest_stall_seconds", "The longest delay of the event loop.")
LOOP_BUSY: Final = _own("ottla_event_loop_busy_ratio", "The share of time in which the event loop had work.")
GATE_WAITS: Final = _own(
    "ottla_write_gate_waits_total", "Times that producers had to wait for the disk.", Kind.PLAIN_COUNTER
)
GATE_SECONDS: Final = _own(
    "ottla_write_gate_wait_seconds_total", "How long producers had to wait for the disk.", Kind.PLAIN_COUNTER
)
PREALLOCATED: Final = _own(
    "ottla_preallocated_bytes_total",
    "Disk space that was allocated ahead of growing segments.",
    Kind.PLAIN_COUNTER,
)
PARKED: Final = _own("ottla_parked_requests", "Requests that wait for replicas, records or threads, by API.")
COLD_READS: Final = _own(
    "ottla_fetch_cold_reads_total", "Reads of records that were not in the page cache.", Kind.PLAIN_COUNTER
)
CODEC_SECONDS: Final = _own(
    "ottla_codec_seconds_total", "Time spent in compression, by codec and direction.", Kind.PLAIN_COUNTER
)
RECOVERY_SECONDS: Final = _own("ottla_recovery_seconds", "How long the logs took to load at the start.")
TELEMETRY_CLIENTS: Final = _own(
    "ottla_telemetry_client_instances", "Clients that asked for a metrics subscription."
)
TELEMETRY_PUSHES: Final = _own(
    "ottla_telemetry_pushes_total", "Metrics that clients pushed.", Kind.PLAIN_COUNTER
)
BUILD_INFO: Final = _own("ottla_build_info", "1, with the version, the Python and the node's id.")
