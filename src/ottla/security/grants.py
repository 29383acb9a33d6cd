"""Who a session is for the authorizer, and what it asks for.

Every request can have these. The authorizer itself (`authorizer.py`) is loaded only where one is configured.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from ottla.wire.enums import AclOperation, ResourceType

EVERY_OPERATION: Final = sum(1 << operation for operation in AclOperation if operation > AclOperation.ALL)
MAX_GRANTS_PER_SESSION: Final = 4096
"""Resources of one type whose rights a session remembers."""
WILDCARD: Final = "*"
"""All hosts, and the name that stands for all resources of a type."""
audit_log = logging.getLogger("kafka.authorizer.logger")


class Action(NamedTuple):
    """What is to be done with which resource."""

    operation: AclOperation
    kind: ResourceType
    name: str
    references: int = 1
    """How often the request refers to the resource, for the audit log."""
    log_denied: bool = True
    """False for filters and authorized_operations: nothing was asked for that is refused."""


class Grants:
    """What a session may do, by resource, as long as the ACLs do not change.

    `internal` is for requests of this process to itself: they may do everything, and no peer can send one.
    """

    __slots__ = ("generation", "host", "internal", "masks", "principal", "topics")

    def __init__(self, principal: str, host: str, *, internal: bool = False) -> None:
        self.principal = principal
        self.host = normal_host(host)
        self.internal = internal
        self.generation = -1
        self.masks: tuple[dict[str | bytes, int], ...] = tuple({} for _ in ResourceType)
        """By the code of the type, then by name: enums as keys of a dict would cost more than the rest of a check."""
        self.topics = self.masks[ResourceType.TOPIC]
        """Also by the ids of topics, whose names never change."""

    def keep(self, kind: int, name: str | bytes, mask: int) -> None:
        """Remember the operations that the session may do with a resource."""
        known = self.masks[kind]
        if len(known) >= MAX_GRANTS_PER_SESSION:
            known.clear()
        known[name] = mask

    def forget(self, generation: int) -> None:
        """The ACLs have changed."""
        self.generation = generation
        for each in self.masks:
            each.clear()


def normal_host(host: str) -> str:
    """One text for each address: Java writes IPv6 in full, Python shortened."""
    if host == WILDCARD:
        return host
    # Loaded where sessions have rights: it takes 3 ms of a node's start.
    import ipaddress

    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def printable(text: str, limit: int = 256) -> str:
    """A peer's text for a log line: one line, no control characters, not longer than the limit."""
    cut = text[:limit]
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in cut)
