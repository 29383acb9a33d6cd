"""Kafka's own StandardAuthorizer is the judge of ours: random ACLs, random requests, the same decisions.

`OTTLA_AUTHORIZER_DECISIONS=100000` asks more of them.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from oracle.kafka_tools import needs_java
from ottla.metadata.image import AclEntry
from ottla.security.authorizer import Authorizer
from ottla.security.grants import Action, Grants
from ottla.testing.apache import LEAN_JVM_FLAGS, kafka_classpath
from ottla.wire.apis import ApiKey
from ottla.wire.enums import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

_PROGRAM = Path(__file__).parent / "java" / "AuthorizerOracle.java"
_DECISIONS = int(os.environ.get("OTTLA_AUTHORIZER_DECISIONS", "12000"))
_PER_WORLD = 120

_PRINCIPALS = ("User:alice", "User:bob", "User:CN=a,O=b:c", "User:ANONYMOUS", "Group:alice", "User:alic")
_OF_ACLS = (*_PRINCIPALS, "User:*", "User:*", "Group:*")
_HOSTS = ("10.0.0.1", "10.0.0.10", "2001:db8:0:0:0:0:0:1", "127.0.0.1")
_NAMES = (
    "a",
    "ab",
    "abc",
    "abcd",
    "b",
    "ba",
    "*",
    "a*",
    "hardcode",
    "kafka-cluster",
    "t.1",
    "t",
    "é",
    "ée",
    "\U0001f600",
)
"""None begins with `*` and goes on: Kafka's ACLs on `*` leave such names out, ours do not."""
_OPERATIONS = tuple(op for op in AclOperation if op not in (AclOperation.UNKNOWN, AclOperation.ANY))
_ASKED = tuple(op for op in _OPERATIONS if op is not AclOperation.ALL)
_KINDS = (
    *(ResourceType.TOPIC,) * 4,
    *(ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID),
    *(ResourceType.DELEGATION_TOKEN, ResourceType.USER),
)


class Ask(NamedTuple):
    """A request; without a name, for any resource of the type."""

    principal: str
    host: str
    operation: AclOperation
    kind: ResourceType
    name: str | None

    def line(self) -> str:
        words = [self.principal, self.host, str(int(self.operation)), str(int(self.kind))]
        return "\t".join(["any", *words] if self.name is None else ["ask", *words, self.name])


class World:
    """An authorizer with its ACLs: ours, and the lines that make Kafka's the same."""

    def __init__(self, random: random.Random) -> None:
        self.random = random
        everyone = random.random() < 0.3
        supers = random.choice(("", "User:root", "User:bob;User:root", "User:CN=a,O=b:c"))
        self.lines = [f"world\t{supers}\t{str(everyone).lower()}"]
        self.authorizer = Authorizer(supers, allow_everyone_if_no_acl_found=everyone)
        self.authorizer.complete_loading()
        self.acls: dict[bytes, AclEntry] = {}
        self.count = 0

    def change(self) -> None:
        """Add an ACL, or take one away."""
        if self.acls and self.random.random() < 0.25:
            id_ = self.random.choice(list(self.acls))
            del self.acls[id_]
            self.lines.append(f"remove\t{int.from_bytes(id_)}")
        elif (acl := self.draw()) not in self.acls.values():
            self.count += 1
            self.acls[self.count.to_bytes(16)] = acl
            self.lines.append("\t".join(["acl", str(self.count), *(str(_plain(word)) for word in acl)]))

    def draw(self) -> AclEntry:
        draw = self.random.choice
        kind = draw(_KINDS)
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else draw(_NAMES)
        pattern = draw((PatternType.LITERAL, PatternType.LITERAL, PatternType.PREFIXED))
        permission = draw((AclPermissionType.ALLOW, AclPermissionType.ALLOW, AclPermissionType.DENY))
        return AclEntry(
            kind, name, pattern, draw(_OF_ACLS), draw(("*", "*", *_HOSTS)), draw(_OPERATIONS), permission
        )

    def ask(self) -> Ask:
        draw = self.random.choice
        kind = draw(_KINDS)
        name: str | None = CLUSTER_NAME if kind is ResourceType.CLUSTER else draw(_NAMES)
        if self.random.random() < 0.2:
            name = None
        return Ask(draw((*_PRINCIPALS, "User:root")), draw(_HOSTS), draw(_ASKED), kind, name)

    def decide(self, ask: Ask, grants: Grants) -> bool:
        if ask.name is None:
            return self.authorizer.authorize_by_type(grants, ask.operation, ask.kind)
        return self.authorizer.authorize(grants, Action(ask.operation, ask.kind, ask.name), ApiKey.FETCH)


def _plain(word: object) -> object:
    return int(word) if isinstance(word, int) else word


def test_decisions_are_those_of_the_standard_authorizer() -> None:
    seeded = random.Random(431)
    lines: list[str] = []
    asked: list[tuple[Ask, bool, list[AclEntry]]] = []
    while len(asked) < _DECISIONS:
        world = World(seeded)
        for _ in range(seeded.randrange(1, 15)):
            world.change()
        # Sessions remember decisions while ACLs change under them.
        sessions = {(who, host): Grants(who, host) for who in (*_PRINCIPALS, "User:root") for host in _HOSTS}
        for _ in range(_PER_WORLD):
            if seeded.random() < 0.1:
                world.change()
            world.authorizer.update(dict(world.acls))
            ask = world.ask()
            world.lines.append(ask.line())
            decided = world.decide(ask, sessions[ask.principal, ask.host])
            asked.append((ask, decided, list(world.acls.values())))
        lines += world.lines
    done = subprocess.run(
        ["java", *LEAN_JVM_FLAGS, "-cp", kafka_classpath(), str(_PROGRAM)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    judged = [line == "1" for line in done.stdout.split()]
    assert len(judged) == len(asked), done.stderr
    differing = [
        (ask, kafka, acls)
        for (ask, ours, acls), kafka in zip(asked, judged, strict=True)
        if ours is not kafka
    ]
    assert not differing, _report(differing)
    # Both answers must be frequent, or the test says nothing.
    assert 0.1 < sum(judged) / len(judged) < 0.9


def _report(differing: list[tuple[Ask, bool, list[AclEntry]]]) -> str:
    """The differing decisions, each with the ACLs of its resource type."""
    lines = [f"{len(differing)} decisions differ"]
    for ask, kafka, acls in differing[:10]:
        lines.append(f"Kafka {'allows' if kafka else 'denies'} {ask}")
        lines += [f"    {acl}" for acl in acls if acl.resource_type == ask.kind]
    return "\n".join(lines)
