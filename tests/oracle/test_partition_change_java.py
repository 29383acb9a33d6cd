"""Kafka's own PartitionChangeBuilder is the judge of ours: thousands of partitions, drawn at random."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from oracle.kafka_tools import needs_java
from ottla.controller.partition_change import Election, PartitionId, PartitionRules, Target, change_partition
from ottla.metadata.image import PartitionRegistration
from ottla.testing.apache import LEAN_JVM_FLAGS, kafka_classpath
from ottla.wire.uuid import uuid_to_str

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

_PROGRAM = Path(__file__).parent / "java" / "PartitionChangeOracle.java"
_CASES = 20_000
_BROKERS = (0, 1, 2, 3, 4)


def directory(number: int) -> bytes:
    return number.to_bytes(16)


class Case(NamedTuple):
    partition: PartitionRegistration
    acceptable: frozenset[int]
    metadata_version: int
    min_isr: int
    elr_enabled: bool
    election: Election
    target: Target

    def question(self) -> str:
        p, t = self.partition, self.target
        words = [
            *(_list(p.replicas), _list(p.isr), _list(p.removing_replicas), _list(p.adding_replicas)),
            *(_list(p.elr), _list(p.last_known_elr), str(p.leader), str(p.leader_recovery_state)),
            *(_list(self.acceptable), str(self.metadata_version), str(self.min_isr)),
            *(str(int(self.elr_enabled)), self.election.name),
            *(_list(t.isr), _list(t.replicas), _list(t.removing), _list(t.adding)),
            *(_one(t.unclean_shutdown), _one(t.leader_recovery_state), _one(next(iter(t.directories), None))),
        ]
        return " ".join(words)

    def ours(self) -> dict[str, Any] | None:
        rules = PartitionRules(
            is_acceptable_leader=lambda replica: replica in self.acceptable,
            default_directory=lambda replica: directory(2000 + replica),
            min_isr=self.min_isr,
            elr_enabled=self.elr_enabled,
            election=self.election,
            metadata_version=self.metadata_version,
        )
        record = change_partition(PartitionId(directory(77), 0), self.partition, rules, self.target)
        if record is None:
            return None
        found = {
            "isr": record.isr,
            "leader": record.leader,
            "replicas": record.replicas,
            "removingReplicas": record.removing_replicas,
            "addingReplicas": record.adding_replicas,
            "leaderRecoveryState": record.leader_recovery_state,
            "directories": None
            if record.directories is None
            else [uuid_to_str(each) for each in record.directories],
            "eligibleLeaderReplicas": record.eligible_leader_replicas,
            "lastKnownElr": record.last_known_elr,
        }
        return {name: value for name, value in found.items() if value not in (None, _DEFAULTS.get(name))}


_DEFAULTS = {"leader": -2, "leaderRecoveryState": -1}


def _list(numbers: Any) -> str:
    return (
        "-"
        if numbers is None
        else ",".join(map(str, sorted(numbers) if isinstance(numbers, frozenset) else numbers))
    )


def _one(number: int | None) -> str:
    return "-" if number is None else str(number)


def draw(rng: random.Random) -> Case:
    def some(of: Any, least: int = 0) -> tuple[int, ...]:
        of = list(of)
        return tuple(rng.sample(of, rng.randint(min(least, len(of)), len(of))))

    replicas = some(_BROKERS, 1)
    elr_enabled = rng.random() < 0.7
    isr = some(replicas, 0 if elr_enabled else 1)
    outside = [replica for replica in replicas if replica not in isr]
    leader = rng.choice([*isr, -1]) if isr else -1
    adding = removing = ()
    if rng.random() < 0.4:
        adding = some(replicas[1:])
        removing = some(replica for replica in replicas if replica not in adding)
    partition = PartitionRegistration(
        replicas=replicas,
        directories=tuple(directory(1000 + replica) for replica in replicas),
        isr=isr,
        leader=leader,
        leader_epoch=5,
        partition_epoch=7,
        removing_replicas=tuple(sorted(removing)),
        adding_replicas=tuple(sorted(adding)),
        elr=tuple(sorted(some(outside))) if elr_enabled and rng.random() < 0.5 else (),
        last_known_elr=some(replicas)[:2] if elr_enabled and leader == -1 else (),
        leader_recovery_state=rng.choice([0, 0, 0, 1]),
    )
    return Case(
        partition=partition,
        acceptable=frozenset(some(replicas)),
        metadata_version=30 if elr_enabled else rng.choice([30, 30, 11]),
        min_isr=rng.randint(1, 3),
        elr_enabled=elr_enabled,
        election=rng.choice(list(Election)),
        target=draw_target(rng, partition, some),
    )


def draw_target(rng: random.Random, partition: PartitionRegistration, some: Any) -> Target:
    kind = rng.choice(["isr", "nothing", "unclean", "reassign", "cancel", "directory", "recovered"])
    if kind == "isr":
        return Target(isr=some(partition.replicas))
    if kind == "unclean":
        gone = rng.choice(partition.replicas)
        return Target(isr=tuple(r for r in partition.isr if r != gone), unclean_shutdown=gone)
    if kind == "reassign":
        wanted = some(_BROKERS, 1)
        removing = tuple(sorted(set(partition.replicas) - set(wanted)))
        adding = tuple(sorted(set(wanted) - set(partition.replicas)))
        return Target(replicas=wanted + removing, removing=removing or None, adding=adding or None)
    if kind == "cancel":
        replicas = tuple(r for r in partition.replicas if r not in partition.adding_replicas)
        isr = tuple(r for r in partition.isr if r not in partition.adding_replicas) or replicas[:1]
        return Target(isr=isr, replicas=replicas, removing=(), adding=()) if replicas else Target()
    if kind == "directory":
        broker = rng.choice(partition.replicas)
        return Target(directories={broker: directory(3000 + broker)})
    if kind == "recovered":
        return Target(isr=some(partition.replicas), leader_recovery_state=0)
    return Target()


def theirs(line: str) -> dict[str, Any] | None:
    if line == "none":
        return None
    record = json.loads(line)
    return {
        name: value
        for name, value in record.items()
        if name not in ("topicId", "partitionId") and value not in (None, _DEFAULTS.get(name))
    }


def test_every_change_is_the_one_that_kafka_makes() -> None:
    rng = random.Random(20_260)
    cases = [draw(rng) for _ in range(_CASES)]
    done = subprocess.run(
        ["java", *LEAN_JVM_FLAGS, "-cp", kafka_classpath(), str(_PROGRAM)],
        input="".join(f"{case.question()}\n" for case in cases),
        capture_output=True,
        encoding="utf-8",
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(cases), done.stderr
    changes = 0
    for case, line in zip(cases, answers, strict=True):
        expected = theirs(line)
        changes += expected is not None
        assert case.ours() == expected, case
    assert changes > _CASES / 4
