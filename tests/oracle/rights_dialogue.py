"""The same requests with the same rights to Apache Kafka and to Ottla, and their answers in a form to compare.

Each case has a user, a topic, a group and a transactional id of its own, so that cases do not change each other.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from oracle.rights_group_requests import GROUP_REQUESTS
from oracle.rights_names import Build, Names
from oracle.rights_requests import DATA_REQUESTS, NODE_REQUESTS
from ottla.testing.apache import ApacheKafka
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire import messages
from ottla.wire.classes import WireStruct
from ottla.wire.enums import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_TABLE = Path(__file__).parents[1] / "unit" / "api" / "authorization.jsonl"
_PATIENCE_S = 60.0
_PASSWORD = "p"
ADMIN = "admin"

_RESOURCES = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.TRANSACTIONAL_ID: "transactional_id",
}


class HasUser(Protocol):
    """One who logs in."""

    @property
    def user(self) -> str: ...


class Right(NamedTuple):
    """An operation on the case's own resource of a type."""

    operation: AclOperation
    kind: ResourceType


@dataclass(frozen=True, slots=True)
class Case:
    """A request of a user with these rights, one of which may be denied besides."""

    number: int
    label: str
    key: int
    version: int
    build: Build
    on_controller: bool
    allowed: tuple[Right, ...]
    denied: Right | None

    @property
    def user(self) -> str:
        return f"user{self.number}"

    def names(self, topic_id: bytes) -> Names:
        number = self.number
        return Names(f"t{number}", topic_id, f"missing{number}", f"g{number}", f"x{number}")

    def __str__(self) -> str:
        rights = ", ".join(f"{each.operation.name} {each.kind.name}" for each in self.allowed) or "nothing"
        but = "" if self.denied is None else f" but not {self.denied.operation.name} {self.denied.kind.name}"
        return f"{self.label} with {rights}{but}"


def _rights() -> dict[tuple[int, bool], list[Right]]:
    """By API and whether a controller answers it: the rights that the table names."""
    found: dict[tuple[int, bool], list[Right]] = {}
    for line in _TABLE.read_text().splitlines():
        row = json.loads(line)
        rights = [
            Right(AclOperation[each["operation"]], ResourceType[each["resource"]]) for each in row["checks"]
        ]
        rights = [each for each in dict.fromkeys(rights) if each.kind in (*_RESOURCES, ResourceType.CLUSTER)]
        found.setdefault((row["key"], row["answered_by"] == "controller"), []).extend(rights)
    return found


def all_cases() -> list[Case]:
    """Every request with no right, with each right alone, with all of them, and with all but one denied."""
    table = _rights()
    cases: list[Case] = []
    asked = [(*row, False) for row in (*DATA_REQUESTS, *GROUP_REQUESTS)]
    asked += [(*row, True) for row in NODE_REQUESTS]
    for label, key, version, build, on_controller in asked:
        rights = list(dict.fromkeys(table.get((key, on_controller)) or table[key, False]))
        grants: list[tuple[tuple[Right, ...], Right | None]] = [((), None)]
        grants += [((right,), None) for right in rights]
        if len(rights) > 1:
            grants.append((tuple(rights), None))
        grants += [(tuple(rights), right) for right in rights]
        for allowed, denied in grants:
            cases.append(Case(len(cases), label, key, version, build, on_controller, allowed, denied))
    return cases


def properties(cases: Sequence[HasUser], data: Path, port: int, controller: int) -> dict[str, object]:
    """The same for both systems: users with passwords on both listeners, and an authorizer."""
    users = " ".join(f'user_{name}="{_PASSWORD}"' for name in (ADMIN, *(case.user for case in cases)))
    login = f'{_PLAIN} required username="{ADMIN}" password="{_PASSWORD}" {users};'
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"CLIENTS://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": login,
        "listener.name.controller.plain.sasl.jaas.config": login,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
        "log.dirs": data,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
    }


class System:
    """One of the two systems, with the topics and the ACLs of all cases."""

    def __init__(self, process: ApacheKafka | BrokerProcess, port: int, controller: int) -> None:
        self.process = process
        self._ports = {False: port, True: controller}
        self.topic_ids: dict[str, bytes] = {}

    def log_in(self, user: str, *, on_controller: bool = False) -> RawClient:
        client = RawClient("127.0.0.1", self._ports[on_controller])
        client.ask(messages.SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = f"\0{user}\0{_PASSWORD}".encode()
        answer = client.ask(messages.SaslAuthenticateRequest(auth_bytes=token), 2)
        assert answer.error_code == 0, (user, answer.error_message)
        return client

    def prepare(self, cases: list[Case]) -> None:
        """Make the topics, then the ACLs, and wait until the broker knows both."""
        with self.log_in(ADMIN) as admin:
            request = messages.CreateTopicsRequest
            topics = [
                request.CreatableTopic(name=case.names(b"").topic, num_partitions=1, replication_factor=1)
                for case in cases
            ]
            answer = admin.ask(request(topics=topics, timeout_ms=60_000), 7)
            assert not [each for each in answer.topics if each.error_code], answer.topics
            # The coordinators' own topics, so that no case waits for them.
            for kind, key in ((0, "anyone"), (1, "anyone"), (2, "anyone:AAAAAAAAAAAAAAAAAAAAAQ:0")):
                self._until(lambda kind=kind, key=key: self._has_coordinator(admin, kind, key))  # type: ignore[misc]
            self._until(lambda: self._gives_producer_ids(admin))
            creations = [acl for case in cases for acl in _acls(case)]
            made = admin.ask(messages.CreateAclsRequest(creations=creations), 3)
            assert not [each for each in made.results if each.error_code]
            self._until(lambda: self._count_acls(admin) >= len(creations))
            self._until(lambda: self._knows_topics(admin, cases))

    def _has_coordinator(self, admin: RawClient, kind: int, key: str) -> bool:
        asked = messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        return bool(admin.ask(asked, 6).coordinators[0].error_code == 0)

    def _gives_producer_ids(self, admin: RawClient) -> bool:
        asked = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        return admin.ask(asked, 5).error_code == 0

    def _count_acls(self, admin: RawClient) -> int:
        everything = messages.DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        return sum(len(each.acls) for each in admin.ask(everything, 3).resources)

    def _knows_topics(self, admin: RawClient, cases: list[Case]) -> bool:
        found = admin.ask(messages.MetadataRequest(topics=None), 12).topics
        self.topic_ids = {str(each.name): each.topic_id for each in found}
        led = {each.name for each in found if each.partitions and each.partitions[0].leader_id >= 0}
        return all(case.names(b"").topic in led for case in cases)

    def _until(self, reached: Any) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not reached():
            assert time.monotonic() < deadline, "the system is not ready"

    def answer(self, case: Case) -> Any:
        """What the system answers, in a form to compare; or that it closed the connection."""
        topic_id = self.topic_ids[str(case.names(b"").topic)]
        names_by_id = {id_: name for name, id_ in self.topic_ids.items()}
        with self.log_in(case.user, on_controller=case.on_controller) as client:
            try:
                response = client.ask(case.build(case.names(topic_id)), case.version)
            except ConnectionError:
                return "closed"
        return comparable(response, names_by_id)

    def stop(self) -> None:
        self.process.kill()


def _acls(case: Case) -> Iterator[Any]:
    names = case.names(b"")
    denied = () if case.denied is None else (case.denied,)
    for permission, rights in ((AclPermissionType.ALLOW, case.allowed), (AclPermissionType.DENY, denied)):
        for right in rights:
            attribute = _RESOURCES.get(right.kind)
            resources = [CLUSTER_NAME] if attribute is None else [getattr(names, attribute)]
            if right.kind is ResourceType.TOPIC:
                resources.append(names.missing)
            for resource in resources:
                yield messages.CreateAclsRequest.AclCreation(
                    resource_type=right.kind,
                    resource_name=resource,
                    resource_pattern_type=PatternType.LITERAL,
                    principal=f"User:{case.user}",
                    host="*",
                    operation=right.operation,
                    permission_type=permission,
                )


_MASKED = frozenset(
    {
        *("throttle_time_ms", "host", "port", "cluster_id", "log_append_time_ms", "broker_epoch"),
        *("producer_id", "log_dir", "error_message"),
    }
)
"""What differs between two systems for other reasons than rights. Sentences are each system's own."""


def comparable(value: Any, names_by_id: dict[bytes, str], field: str = "") -> Any:
    """Messages as dictionaries, without what must differ; lists in one order."""
    if field in _MASKED:
        return "masked"
    if isinstance(value, WireStruct):
        return {
            name: comparable(getattr(value, name), names_by_id, name)
            for name in value.__struct_fields__
            if not name.startswith("_")
        }
    if isinstance(value, list):
        return sorted((comparable(each, names_by_id) for each in value), key=repr)
    if isinstance(value, (bytes, memoryview)):
        data = bytes(value)
        if field == "topic_id" and any(data) and data not in names_by_id:
            return "an id that is new"
        return names_by_id.get(data, data)
    return value


def start_apache(folder: Path, cases: Sequence[HasUser], more: Mapping[str, object] | None = None) -> System:
    port, controller = free_ports(2)
    node = ApacheKafka(folder, properties(cases, folder / "data", port, controller))
    node.settings = {**properties(cases, folder / "data", port, controller), **(more or {})}
    node.port = port
    node.format()
    return System(node.start(), port, controller)


def start_ottla(folder: Path, cases: Sequence[HasUser], more: Mapping[str, object] | None = None) -> System:
    port, controller = free_ports(2)
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "server.properties"
    settings = {**properties(cases, folder / "data", port, controller), **(more or {})}
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    process = BrokerProcess(folder / "data", config=config, arguments=["--log-level", "warning"])
    return System(process.start(), port, controller)
