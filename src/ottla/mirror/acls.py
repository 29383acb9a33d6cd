"""Access to mirrored topics: who may read a topic may read its copy. Writing stays with the mirror."""

from __future__ import annotations

from ottla.admin.acls import Acls, Entry, Pattern, create_acls, describe_acls
from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.errors import ApiException, ErrorCode
from ottla.mirror.config import FlowConfig
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType


def target_acls(flow: FlowConfig, found: Acls, mirrored: set[str]) -> list[tuple[Pattern, Entry]]:
    """The entries of the target, from those of the source, by MirrorMaker 2's rules."""
    policy = flow.policy
    wanted: list[tuple[Pattern, Entry]] = []
    for pattern, entries in found.items():
        if pattern.kind != ResourceType.TOPIC or pattern.pattern != PatternType.LITERAL:
            continue
        if pattern.name is None or pattern.name not in mirrored:
            continue
        remote = pattern._replace(name=policy.remote_topic(flow.source, pattern.name))
        for entry in entries:
            allows = entry.permission == AclPermissionType.ALLOW
            if allows and entry.operation == AclOperation.WRITE:
                continue
            if allows and entry.operation == AclOperation.ALL:
                wanted.append((remote, entry._replace(operation=AclOperation.READ)))
            else:
                wanted.append((remote, entry))
    return wanted


def sync_acls(flow: FlowConfig, source: Cluster, target: Cluster, mirrored: set[str]) -> int:
    """Adds what is missing at the target; returns how many entries. None where a cluster has no authorizer."""
    any_topic = Pattern(ResourceType.TOPIC, None, PatternType.ANY)
    try:
        wanted = target_acls(flow, describe_acls(source, any_topic), mirrored)
        there = describe_acls(target, any_topic)
    except ApiException as error:
        if error.code == ErrorCode.SECURITY_DISABLED:
            return 0
        raise
    missing = [(pattern, entry) for pattern, entry in wanted if entry not in there.get(pattern, [])]
    if missing:
        for result in create_acls(target, missing).results:
            raise_for(result.error_code, result.error_message, "access to mirrored topics")
    return len(missing)
