"""The cluster's ACLs, compiled: which operations a principal on a host may do with a resource.

For each resource type there are entries by literal name and by prefix. An entry holds, for each principal and
host, two masks of operations: denied and allowed. What an allowed operation implies is folded in, so that one look
answers for all operations at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.metadata.image import AclEntry
from ottla.security.grants import EVERY_OPERATION, WILDCARD, normal_host
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType

WILDCARD_PRINCIPAL: Final = "User:*"

_IMPLIES_DESCRIBE: Final = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DELETE,
    AclOperation.ALTER,
)
_DENY: Final = int(AclPermissionType.DENY)
_ALLOW: Final = int(AclPermissionType.ALLOW)
_PREFIXED: Final = int(PatternType.PREFIXED)
"""Plain numbers: looking an enum's member up costs as much as the rest of a step."""


Masks = tuple[int, int, bool]
"""Denied and allowed operations as bits `1 << code`, and whether any ACL, of any principal, is about the resource."""


class _Entry:
    """The ACLs of one pattern."""

    __slots__ = ("acls", "masks")

    def __init__(self) -> None:
        self.acls: dict[bytes, AclEntry] = {}
        self.masks: dict[str, dict[str, tuple[int, int]]] = {}

    def compile(self) -> None:
        self.masks = {}
        for _, _, _, principal, host, operation, permission in self.acls.values():
            hosts = self.masks.get(principal)
            if hosts is None:
                hosts = self.masks[principal] = {}
            where = normal_host(host)
            denied, allowed = hosts.get(where, (0, 0))
            if permission == _DENY:
                denied |= _DENIED.get(operation, 0)
            elif permission == _ALLOW:
                allowed |= _ALLOWED.get(operation, 0)
            hosts[where] = denied, allowed


def _mask(operation: int) -> int:
    return EVERY_OPERATION if operation == AclOperation.ALL else 1 << operation


def _with_implied(mask: int) -> int:
    if any(mask & 1 << operation for operation in _IMPLIES_DESCRIBE):
        mask |= 1 << AclOperation.DESCRIBE
    if mask & 1 << AclOperation.ALTER_CONFIGS:
        mask |= 1 << AclOperation.DESCRIBE_CONFIGS
    return mask


_DENIED: Final = {int(each): _mask(each) for each in AclOperation}
_ALLOWED: Final = {int(each): _with_implied(_mask(each)) for each in AclOperation}
"""The masks of each operation of an ACL."""


class _OfType:
    """The entries of one resource type."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Entry] = {}
        self.prefixed: dict[str, _Entry] = {}
        self.lengths: list[int] = []
        """The distinct lengths of the prefixes, in ascending order."""

    def entries(self, name: str) -> list[_Entry]:
        """Those whose pattern matches a resource's name."""
        literal = self.literal
        found = []
        if name in literal:
            found.append(literal[name])
        if WILDCARD in literal and name != WILDCARD:
            found.append(literal[WILDCARD])
        if lengths := self.lengths:
            prefixed, longest = self.prefixed, len(name)
            for length in lengths:
                if length > longest:
                    break
                entry = prefixed.get(name[:length])
                if entry is not None:
                    found.append(entry)
        return found


class AclIndex:
    """All ACLs. `update` follows the metadata; `masks` decides."""

    __slots__ = ("_acls", "_types", "generation")

    def __init__(self) -> None:
        self._acls: dict[bytes, AclEntry] = {}
        self._types: dict[int, _OfType] = {}
        self.generation = 0
        """Changes with every update: what was decided before may not hold any more."""

    def __len__(self) -> int:
        return len(self._acls)

    def update(self, acls: Mapping[bytes, AclEntry]) -> None:
        """Take over the ACLs of the newest image; only what differs is compiled again."""
        old = self._acls
        if acls is old:
            return
        touched: dict[tuple[int, int, str], _Entry] = {}
        for acl_id in old.keys() - acls.keys():
            acl = old[acl_id]
            entry = self._entry(acl)
            del entry.acls[acl_id]
            touched[acl.resource_type, acl.pattern_type, acl.resource_name] = entry
        for acl_id in acls.keys() - old.keys():
            acl = acls[acl_id]
            entry = self._entry(acl)
            entry.acls[acl_id] = acl
            touched[acl.resource_type, acl.pattern_type, acl.resource_name] = entry
        for (kind, pattern, name), entry in touched.items():
            if entry.acls:
                entry.compile()
            else:
                del self._table(self._types[kind], pattern)[name]
        for kind in {key[0] for key in touched}:
            of_type = self._types[kind]
            of_type.lengths = sorted({len(prefix) for prefix in of_type.prefixed})
        self._acls = dict(acls)
        self.generation += 1

    def masks(self, kind: int, name: str, principal: str, host: str) -> Masks:
        """What a principal on a host (see `normal_host`) is denied and allowed, and whether any ACL fits."""
        denied = allowed = 0
        of_type = self._types.get(kind)
        if of_type is None:
            return 0, 0, False
        entries = of_type.entries(name)
        for entry in entries:
            by_principal = entry.masks
            for each in (principal, WILDCARD_PRINCIPAL):
                if each in by_principal:
                    hosts = by_principal[each]
                    for where in (host, WILDCARD):
                        if where in hosts:
                            masks = hosts[where]
                            denied |= masks[0]
                            allowed |= masks[1]
        return denied, allowed, bool(entries)

    def deciding(self, kind: int, name: str, principal: str, host: str, operation: int) -> AclEntry | None:
        """The ACL that decides about an operation, for the audit log: a DENY before an ALLOW."""
        of_type = self._types.get(kind)
        allow: AclEntry | None = None
        for entry in () if of_type is None else of_type.entries(name):
            for acl in entry.acls.values():
                if acl.principal not in (principal, WILDCARD_PRINCIPAL):
                    continue
                if normal_host(acl.host) not in (host, WILDCARD):
                    continue
                mask = _mask(acl.operation)
                if acl.permission_type == AclPermissionType.DENY:
                    if mask & 1 << operation:
                        return acl
                elif allow is None and _with_implied(mask) & 1 << operation:
                    allow = acl
        return allow

    def any_allowed(self, kind: int, principal: str, host: str, operation: int) -> bool:
        """Whether some resource of this type may be used, by Kafka's rules for `authorizeByResourceType`.

        A DENY of every name denies. Otherwise an allowed pattern counts unless a denied one covers it. Nothing is
        implied by other operations here.
        """
        denied_literals: set[str] = set()
        denied_prefixes: set[str] = set()
        allowed: list[tuple[int, str]] = []
        for acl in self._acls.values():
            if acl.resource_type != kind or acl.principal not in (principal, WILDCARD_PRINCIPAL):
                continue
            if normal_host(acl.host) not in (host, WILDCARD):
                continue
            if acl.operation not in (operation, AclOperation.ALL):
                continue
            if acl.permission_type == AclPermissionType.DENY:
                if acl.pattern_type == PatternType.PREFIXED:
                    denied_prefixes.add(acl.resource_name)
                elif acl.resource_name == WILDCARD:
                    return False
                else:
                    denied_literals.add(acl.resource_name)
            elif acl.permission_type == AclPermissionType.ALLOW:
                allowed.append((acl.pattern_type, acl.resource_name))
        for pattern, name in allowed:
            if pattern == PatternType.LITERAL and name == WILDCARD:
                return True
            if pattern == PatternType.LITERAL and name in denied_literals:
                continue
            if not any(name[:end] in denied_prefixes for end in range(1, len(name) + 1)):
                return True
        return False

    def _entry(self, acl: AclEntry) -> _Entry:
        of_type = self._types.setdefault(acl.resource_type, _OfType())
        table = self._table(of_type, acl.pattern_type)
        entry = table.get(acl.resource_name)
        if entry is None:
            entry = table[acl.resource_name] = _Entry()
        return entry

    @staticmethod
    def _table(of_type: _OfType, pattern: int) -> dict[str, _Entry]:
        return of_type.prefixed if pattern == _PREFIXED else of_type.literal
