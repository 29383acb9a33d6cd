"""The cluster's metadata as a tree of names and texts, laid out as kafka-metadata-shell lays it out."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ottla import __version__
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.values import java_double
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import METADATA_VERSIONS
from ottla.metadata.image import (
    EMPTY_IMAGE,
    AclEntry,
    BrokerRegistration,
    ControllerRegistration,
    DelegationToken,
    LeaderRecoveryState,
    ListenerEndpoint,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    VersionRange,
)
from ottla.metadata.records import decode_record
from ottla.metadata.transactions import TransactionFilter
from ottla.records.batch import check_crc, iter_batches, iter_records
from ottla.wire.enums import AclOperation, AclPermissionType, ConfigResourceType, PatternType, ResourceType
from ottla.wire.uuid import uuid_to_str

Tree = Mapping[str, object]
"""Names to subtrees, which are mappings, or to texts."""

_SIGNED: Final = struct.Struct(">qq")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_QUOTA_NAMES: Final = (("client-id", "clientId"), ("ip", "ip"), ("user", "user"))


class Loaded:
    """The image that a file adds up to, and the place and time of its last record."""

    def __init__(self, path: Path) -> None:
        self.time_ms = -1
        delta = MetadataDelta(EMPTY_IMAGE)
        offset = epoch = -1
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise UsageProblem(f"{path} is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                data = memoryview(mapped)
                try:
                    transactions = TransactionFilter()
                    for position, header in iter_batches(data, 0, len(data)):
                        if not check_crc(data, position, header):
                            raise UsageProblem(f"{path}: the batch at byte {position} is damaged")
                        offset, epoch = header.last_offset, header.partition_leader_epoch
                        self.time_ms = max(self.time_ms, header.max_timestamp)
                        for record in () if header.is_control else iter_records(data, position, header):
                            for message in transactions.feed(decode_record(record.value or b"")):
                                delta.replay(message)
                finally:
                    data.release()
        if offset < 0:
            raise UsageProblem(f"{path} holds no batches of metadata: expected a snapshot or a log of it")
        self.image = delta.apply(offset, epoch)

    def tree(self) -> Tree:
        return {"image": _image(self.image, self.time_ms), "local": {"version": __version__}}


def _image(image: MetadataImage, time_ms: int) -> Tree:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    time = moment.strftime("%Y-%m-%dT%H:%M:%S")
    if moment.microsecond:
        time += f".{moment.microsecond // 1000:03d}".rstrip("0")
    return {
        "acls": {"byId": {uuid_to_str(key): _acl(entry) for key, entry in image.acls.items()}},
        "clientQuotas": {
            _quota_name(dict(entity)): {key: java_double(value) for key, value in quotas.items()}
            for entity, quotas in image.client_quotas.items()
        },
        "cluster": {
            "brokers": {str(key): _broker(each) for key, each in image.brokers.items()},
            "controllers": {str(key): _controller(each) for key, each in image.controllers.items()},
        },
        "configs": {
            _resource_name(kind, name): dict(settings)
            for (kind, name), settings in image.configs.resources.items()
        },
        "delegationToken": {key: _token(token) for key, token in image.tokens.items()},
        "features": _features(image),
        "producerIds": {"nextProducerId": str(image.producer_ids.next)},
        "provenance": f"offset {image.offset}, epoch {image.epoch}, time {time}Z[UTC]",
        "scram": {
            name: {
                user: (
                    f"ScramCredentialData(salt={each.salt.hex()}, storedKey={each.stored_key.hex()},"
                    f" serverKey={each.server_key.hex()}, iterations={each.iterations})"
                )
                for (kind, user), each in image.scram.items()
                if kind == mechanism
            }
            for mechanism, name in _MECHANISMS.items()
        },
        "topics": {
            "byId": {uuid_to_str(key): _topic(topic) for key, topic in image.topics.by_id.items()},
            "byName": {name: _topic(topic) for name, topic in image.topics.by_name.items()},
        },
    }


def _features(image: MetadataImage) -> Tree:
    level = image.metadata_version
    version = f"Optional[{METADATA_VERSIONS.get(level, level)}]" if level > 0 else "Optional.empty"
    finalized = {
        f"finalized_{name}": str(level)
        for name, level in image.features.items()
        if name != "metadata.version"
    }
    return {"metadataVersion": version, **finalized}


def _topic(topic: TopicImage) -> Tree:
    partitions = {str(number): _partition(each) for number, each in topic.partitions.items()}
    return {"name": topic.name, "id": uuid_to_str(topic.id), **partitions}


def _listed(values: Iterable[object]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _partition(each: PartitionRegistration) -> str:
    return (
        f"PartitionRegistration(replicas={_listed(each.replicas)},"
        f" directories={_listed(map(uuid_to_str, each.directories))}, isr={_listed(each.isr)},"
        f" removingReplicas={_listed(each.removing_replicas)}, addingReplicas={_listed(each.adding_replicas)},"
        f" elr={_listed(each.elr)}, lastKnownElr={_listed(each.last_known_elr)}, leader={each.leader},"
        f" leaderRecoveryState={LeaderRecoveryState(each.leader_recovery_state).name},"
        f" leaderEpoch={each.leader_epoch}, partitionEpoch={each.partition_epoch})"
    )


def _endpoints(listeners: Mapping[str, ListenerEndpoint]) -> str:
    return _listed(
        f"Endpoint(listenerName='{each.name}', securityProtocol={_PROTOCOLS[each.security_protocol]},"
        f" host='{each.host}', port={each.port})"
        for _, each in sorted(listeners.items())
    )


def _ranges(features: Mapping[str, VersionRange]) -> str:
    shown = (f"{name}: {each.min}-{each.max}" for name, each in sorted(features.items()))
    return "{" + ", ".join(shown) + "}"


def _java(value: bool) -> str:
    return "true" if value else "false"


def _broker(each: BrokerRegistration) -> str:
    rack = "Optional.empty" if each.rack is None else f"Optional[{each.rack}]"
    return (
        f"BrokerRegistration(id={each.id}, epoch={each.epoch}, incarnationId={uuid_to_str(each.incarnation_id)},"
        f" listeners={_endpoints(each.listeners)}, supportedFeatures={_ranges(each.features)}, rack={rack},"
        f" fenced={_java(each.fenced)}, inControlledShutdown={_java(each.in_controlled_shutdown)},"
        f" isMigratingZkBroker={_java(each.is_migrating_zk_broker)},"
        f" directories={_sorted_ids(each.directories)},"
        f" cordonedDirectories={_sorted_ids(each.cordoned_directories)})"
    )


def _sorted_ids(ids: Iterable[bytes]) -> str:
    """Ids in the order that Java's signed numbers have."""
    return _listed(uuid_to_str(each) for each in sorted(ids, key=_SIGNED.unpack))


def _controller(each: ControllerRegistration) -> str:
    return (
        f"ControllerRegistration(id={each.id}, incarnationId={uuid_to_str(each.incarnation_id)},"
        f" zkMigrationReady={_java(each.zk_migration_ready)}, listeners={_endpoints(each.listeners)},"
        f" supportedFeatures={_ranges(each.features)})"
    )


def _acl(entry: AclEntry) -> str:
    return (
        f"StandardAcl[resourceType={ResourceType(entry.resource_type).name}, resourceName={entry.resource_name},"
        f" patternType={PatternType(entry.pattern_type).name}, principal={entry.principal},"
        f" host={entry.host}, operation={AclOperation(entry.operation).name},"
        f" permissionType={AclPermissionType(entry.permission_type).name}]"
    )


def _resource_name(kind: int, name: str) -> str:
    title = ConfigResourceType(kind).name
    return f"{title}:{name}" if name else title


def _quota_name(entity: Mapping[str, str | None]) -> str:
    def escaped(text: str) -> str:
        return re.sub(r"([\\()])", r"\\\1", text)

    named = ((title, entity.get(kind)) for kind, title in _QUOTA_NAMES)
    return "_".join(f"{title}({escaped(name)})" for title, name in named if name is not None)


def _token(token: DelegationToken) -> str:
    return (
        f"DelegationTokenDatatokenId={token.token_id}(owner={token.owner}(tokenRequester={token.requester}"
        f"(renewers={' '.join(token.renewers)}, issueTimestamp={token.issue_timestamp},"
        f" maxTimestamp={token.max_timestamp}), expiryTimestamp={token.expiration_timestamp}"
    )


def find(tree: Tree, glob: str, directory: str = "/") -> Iterator[tuple[list[str], object]]:
    """The paths that fit a glob, with their contents."""
    full = glob if glob.startswith("/") else f"{directory}/{glob}"
    parts: list[str] = []
    for part in full.split("/"):
        if part == "..":
            parts[-1:] = []
        elif part not in ("", "."):
            parts.append(part)
    yield from _find(tree, parts, [])


def _find(node: object, parts: list[str], path: list[str]) -> Iterator[tuple[list[str], object]]:
    if not parts:
        yield path, node
    elif isinstance(node, Mapping):
        pattern = _glob(parts[0])
        for name in sorted(node):
            if pattern.fullmatch(name):
                yield from _find(node[name], parts[1:], [*path, name])


def _glob(text: str) -> re.Pattern[str]:
    """A glob with `*`, `?` and `{a,b}`."""
    signs = {"*": ".*", "?": ".", "{": "(?:", "}": ")", ",": "|" if "{" in text else ","}
    try:
        return re.compile("".join(signs.get(sign, re.escape(sign)) for sign in text))
    except re.error:
        return re.compile(re.escape(text))
