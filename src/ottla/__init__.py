"""A Kafka-compatible message broker, client and stream processor.

The client API is reached from here (`from ottla import KafkaProducer`) and loaded when it is asked for: a broker
starts without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.acl_types import ACL as ACL
    from ottla.client.acl_types import ACLFilter as ACLFilter
    from ottla.client.acl_types import ResourcePattern as ResourcePattern
    from ottla.client.acl_types import ResourcePatternFilter as ResourcePatternFilter
    from ottla.client.admin import KafkaAdminClient as KafkaAdminClient
    from ottla.client.admin_groups import MemberToRemove as MemberToRemove
    from ottla.client.admin_partitions import OffsetTimestamp as OffsetTimestamp
    from ottla.client.admin_transactions import AbortTransactionSpec as AbortTransactionSpec
    from ottla.client.admin_transactions import PartitionProducerState as PartitionProducerState
    from ottla.client.admin_transactions import ProducerState as ProducerState
    from ottla.client.admin_transactions import TransactionDescription as TransactionDescription
    from ottla.client.admin_transactions import TransactionListing as TransactionListing
    from ottla.client.admin_transactions import TransactionState as TransactionState
    from ottla.client.admin_types import ConfigResource as ConfigResource
    from ottla.client.admin_types import NewPartitions as NewPartitions
    from ottla.client.admin_types import NewTopic as NewTopic
    from ottla.client.admin_users import UserScramCredentialDeletion as UserScramCredentialDeletion
    from ottla.client.admin_users import UserScramCredentialUpsertion as UserScramCredentialUpsertion
    from ottla.client.aio import AsyncKafkaConsumer as AsyncKafkaConsumer
    from ottla.client.aio import AsyncKafkaProducer as AsyncKafkaProducer
    from ottla.client.consumer import KafkaConsumer as KafkaConsumer
    from ottla.client.consumer_settings import CooperativeStickyAssignor as CooperativeStickyAssignor
    from ottla.client.consumer_settings import RangePartitionAssignor as RangePartitionAssignor
    from ottla.client.consumer_settings import RoundRobinPartitionAssignor as RoundRobinPartitionAssignor
    from ottla.client.enums import ACLOperation as ACLOperation
    from ottla.client.enums import ACLPermissionType as ACLPermissionType
    from ottla.client.enums import ACLResourcePatternType as ACLResourcePatternType
    from ottla.client.enums import AlterConfigOp as AlterConfigOp
    from ottla.client.enums import ConfigResourceType as ConfigResourceType
    from ottla.client.enums import ElectionType as ElectionType
    from ottla.client.enums import IsolationLevel as IsolationLevel
    from ottla.client.enums import OffsetSpec as OffsetSpec
    from ottla.client.enums import ResourceType as ResourceType
    from ottla.client.enums import ScramMechanism as ScramMechanism
    from ottla.client.enums import UpdateFeatureType as UpdateFeatureType
    from ottla.client.errors import KafkaError as KafkaError
    from ottla.client.listeners import ConsumerRebalanceListener as ConsumerRebalanceListener
    from ottla.client.partitioners import DefaultPartitioner as DefaultPartitioner
    from ottla.client.partitioners import Partitioner as Partitioner
    from ottla.client.producer import KafkaProducer as KafkaProducer
    from ottla.client.serializers import DefaultSerializer as DefaultSerializer
    from ottla.client.serializers import Deserializer as Deserializer
    from ottla.client.serializers import JsonSerializer as JsonSerializer
    from ottla.client.serializers import Serializer as Serializer
    from ottla.client.structs import ConsumerGroupMetadata as ConsumerGroupMetadata
    from ottla.client.structs import ConsumerRecord as ConsumerRecord
    from ottla.client.structs import OffsetAndMetadata as OffsetAndMetadata
    from ottla.client.structs import OffsetAndTimestamp as OffsetAndTimestamp
    from ottla.client.structs import RecordMetadata as RecordMetadata
    from ottla.client.structs import TopicPartition as TopicPartition
    from ottla.client.structs import TopicPartitionReplica as TopicPartitionReplica

__version__ = "0.1.0"

_HOMES = {
    "acl_types": (
        "ACL",
        "ACLFilter",
        "ResourcePattern",
        "ResourcePatternFilter",
    ),
    "admin": ("KafkaAdminClient",),
    "admin_groups": ("MemberToRemove",),
    "admin_partitions": ("OffsetTimestamp",),
    "admin_transactions": (
        "AbortTransactionSpec",
        "PartitionProducerState",
        "ProducerState",
        "TransactionDescription",
        "TransactionListing",
        "TransactionState",
    ),
    "admin_types": ("ConfigResource", "NewPartitions", "NewTopic"),
    "admin_users": ("UserScramCredentialDeletion", "UserScramCredentialUpsertion"),
    "aio": ("AsyncKafkaConsumer", "AsyncKafkaProducer"),
    "consumer": ("KafkaConsumer",),
    "consumer_settings": (
        "CooperativeStickyAssignor",
        "RangePartitionAssignor",
        "RoundRobinPartitionAssignor",
    ),
    "errors": ("KafkaError",),
    "enums": (
        "ACLOperation",
        "ACLPermissionType",
        "ACLResourcePatternType",
        "AlterConfigOp",
        "ConfigResourceType",
        "ElectionType",
        "IsolationLevel",
        "OffsetSpec",
        "ResourceType",
        "ScramMechanism",
        "UpdateFeatureType",
    ),
    "listeners": ("ConsumerRebalanceListener",),
    "partitioners": ("DefaultPartitioner", "Partitioner"),
    "producer": ("KafkaProducer",),
    "serializers": ("DefaultSerializer", "Deserializer", "JsonSerializer", "Serializer"),
    "structs": (
        "ConsumerGroupMetadata",
        "ConsumerRecord",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "RecordMetadata",
        "TopicPartition",
        "TopicPartitionReplica",
    ),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"ottla.client.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
