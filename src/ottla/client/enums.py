"""Kafka's enumerations for the client API, some of them under the names that kafka-python gives them."""

from ottla.wire.enums import AclOperation as ACLOperation
from ottla.wire.enums import AclPermissionType as ACLPermissionType
from ottla.wire.enums import (
    AlterConfigOp,
    ConfigResourceType,
    ElectionType,
    IsolationLevel,
    OffsetSpec,
    ResourceType,
    ScramMechanism,
)
from ottla.wire.enums import PatternType as ACLResourcePatternType
from ottla.wire.enums import UpgradeType as UpdateFeatureType

__all__ = [
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
]
