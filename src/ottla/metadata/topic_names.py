"""Kafka's rules for topic names, and the names of its internal topics."""

from __future__ import annotations

import re
from collections.abc import Container
from itertools import product
from typing import Final

from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName

OFFSETS_TOPIC: Final = TopicName("__consumer_offsets")
TRANSACTIONS_TOPIC: Final = TopicName("__transaction_state")
SHARE_STATE_TOPIC: Final = TopicName("__share_group_state")
CLUSTER_METADATA_TOPIC: Final = TopicName("__cluster_metadata")

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
"""Topics that clients see marked as internal."""

MAX_NAME_LENGTH: Final = 249
"""A directory name also holds the partition, and `-delete` with a unique part."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")
_COLLISION_CHARS: Final = re.compile(r"[._]")
_MAX_VARIANTS_TRIED: Final = 6


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def why_invalid(name: str) -> str | None:
    """Why a topic name is invalid; None if it is valid."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"'{name[:40]}...' is longer than the {MAX_NAME_LENGTH} characters that are allowed"
    if not _LEGAL.match(name):
        return f"'{name}' has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def validate_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION."""
    reason = why_invalid(name)
    if reason is not None:
        raise ApiException(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}.")


def colliding_name(name: str, existing: Container[str]) -> str | None:
    """A topic whose name differs only in '.' and '_', which are the same in metric names."""
    parts = _COLLISION_CHARS.split(name)
    gaps = len(parts) - 1
    if gaps == 0:
        return None
    if gaps > _MAX_VARIANTS_TRIED and hasattr(existing, "__iter__"):
        unified = name.replace(".", "_")
        candidates = (other for other in existing if other.replace(".", "_") == unified)
        return next((other for other in candidates if other != name), None)
    for separators in product("._", repeat=gaps):
        variant = "".join(part + sep for part, sep in zip(parts, (*separators, ""), strict=True))
        if variant != name and variant in existing:
            return variant
    return None
