"""Schemas in programs: serializers for clients, Streams and Spark that share their schemas through a registry.

>>> from ottla.schemas import Registry
>>> registry = Registry("http://localhost:8081")
>>> serde = registry.avro("orders-value", {"type": "record", "name": "Order", "fields": []})
"""

from ottla.schemas.client import Reference, RegisteredSchema, Registry
from ottla.schemas.errors import (
    IncompatibleSchema,
    InvalidData,
    RegistryRefused,
    RegistryUnavailable,
    SchemaError,
    UnknownSchema,
    UnsupportedRules,
)
from ottla.schemas.serde import DeadLetters, Poison

__all__ = [
    "DeadLetters",
    "IncompatibleSchema",
    "InvalidData",
    "Poison",
    "Reference",
    "RegisteredSchema",
    "Registry",
    "RegistryRefused",
    "RegistryUnavailable",
    "SchemaError",
    "UnknownSchema",
    "UnsupportedRules",
]
