"""A shard of the group coordinator without a log or sockets, and members that behave as consumers do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.config.broker import BrokerConfig
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.heartbeat import validate
from ottla.coordinator.group.context import RequestInfo
from ottla.coordinator.group.shard import SERDE, GroupShard
from ottla.coordinator.result import CoordinatorResult
from ottla.coordinator.shard import ShardContext
from ottla.coordinator.timers import Timers
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.promise import Promise
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire import messages

GROUP = "g"
Owned = dict[bytes, set[int]]


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")


class Rig:
    """One shard; what it writes goes through bytes into `log`, from which `reload` makes another."""

    def __init__(self, topics: Mapping[str, int] | None = None, **overrides: str) -> None:
        settings = {key.replace("_", "."): value for key, value in overrides.items()}
        self.config = BrokerConfig.single_node({"group.initial.rebalance.delay.ms": "0", **settings})
        self.clock = VirtualClock()
        self.image = MetadataImage(offset=0)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.shard = self._new_shard()
        for name, partitions in (topics or {}).items():
            self.create_topic(name, partitions)

    def _new_shard(self) -> GroupShard:
        self.timers = Timers(self.clock, self._run_timer)
        shard = GroupShard(ShardContext(0, 0, self.clock, self.timers), self.config, self.image)
        return shard

    def _run_timer(self, operation: Any, still_wanted: Any, failed: Any) -> None:
        if still_wanted():
            self.apply(operation(self.clock.now_ms()))

    def apply(self, result: CoordinatorResult[Any]) -> Any:
        for record in result.records:
            written = SERDE.key_bytes(record), SERDE.value_bytes(record)
            self.log.append(written)
            if result.replay:
                self.shard.replay(len(self.log) - 1, -1, -1, SERDE.decode(*written))
        if result.on_committed is not None:
            result.on_committed(None)
        return result.response

    def answer(self, result: CoordinatorResult[Any]) -> Any:
        """The response, which must be there already."""
        response = self.apply(result)
        if isinstance(response, Promise):
            got: list[Any] = []
            response.then(got.append, got.append)
            return got[0]
        return response

    def reload(self, *, compacted: bool = False) -> GroupShard:
        """Another shard from the same records, as after a restart."""
        log = list({key: (key, value) for key, value in self.log}.values()) if compacted else self.log
        if compacted:
            last = {key: place for place, (key, _) in enumerate(self.log)}
            log = [entry for place, entry in enumerate(self.log) if last[entry[0]] == place]
        timers = Timers(self.clock, lambda *_: None)
        shard = GroupShard(ShardContext(0, 1, self.clock, timers), self.config, self.image)
        for offset, (key, value) in enumerate(log):
            shard.replay(offset, -1, -1, SERDE.decode(key, value))
        return shard

    def restart(self) -> None:
        """Go on with a shard loaded from the log."""
        self.timers.cancel_all()
        log = list(self.log)
        self.shard = self._new_shard()
        for offset, (key, value) in enumerate(log):
            self.shard.replay(offset, -1, -1, SERDE.decode(key, value))
        self.shard.on_loaded(self.image, self.clock.now_ms())

    # -- topics

    def create_topic(self, name: str, partitions: int) -> None:
        self._change(
            messages.TopicRecord(name=name, topic_id=topic_id(name)),
            *(_partition(name, number) for number in range(partitions)),
        )

    def add_partitions(self, name: str, total: int) -> None:
        present = len(self.image.topics.by_name[name].partitions)
        self._change(*(_partition(name, number) for number in range(present, total)))

    def delete_topic(self, name: str) -> None:
        self._change(messages.RemoveTopicRecord(topic_id=topic_id(name)))

    def set_group_config(self, name: str, value: str) -> None:
        self._change(messages.ConfigRecord(resource_type=32, resource_name=GROUP, name=name, value=value))

    def _change(self, *records: Any) -> None:
        delta = MetadataDelta(self.image)
        delta.replay_all(records)
        self.image = delta.apply(self.image.offset + len(records), 0)
        self.shard.on_metadata_update(delta, self.image)

    # -- requests

    def heartbeat(self, *, version: int = 1, client: str = "c", **fields: Any) -> Any:
        request = messages.ConsumerGroupHeartbeatRequest(**{"group_id": GROUP, **fields})
        validate(request, version, self.config)
        info = RequestInfo(version, client, "/127.0.0.1")
        return self.answer(self.shard.consumer.heartbeat(info, request, self.clock.now_ms()))

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.groups.get(GROUP)
        assert isinstance(group, ConsumerGroup)
        return group


def _partition(name: str, number: int) -> Any:
    return messages.PartitionRecord(
        topic_id=topic_id(name), partition_id=number, replicas=[1], isr=[1], leader=1, directories=[b"d" * 16]
    )


def snapshot(shard: GroupShard) -> Any:
    """Everything of the consumer groups that records keep, in a form to compare."""
    return {
        group.group_id: (
            group.epoch,
            group.metadata_hash,
            group.assignment_epoch,
            group.assignment_ms,
            dict(group.members),
            {member_id: dict(target) for member_id, target in group.target.items()},
            dict(group.static_members),
            group.subscriptions.topics(),
            dict(group.subscriptions.resolved),
            group.state_name,
            group._holders,
        )
        for group in shard.groups
        if isinstance(group, ConsumerGroup)
    }


class Member:
    """A consumer of the new protocol: reports what it owns, gives up first what it is to lose, then takes the rest."""

    def __init__(
        self,
        rig: Rig,
        member_id: str,
        topics: Iterable[str] | None = None,
        *,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.rig = rig
        self.member_id = member_id
        self.topics = None if topics is None else list(topics)
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.epoch = 0
        self.owned: Owned = {}
        self.wanted: Owned | None = None
        self.interval_ms = 0
        self._full = True

    def join(self) -> Any:
        self.epoch = 0
        self.owned = {}
        self.wanted = None
        self._full = True
        return self.beat()

    def beat(self) -> Any:
        """One heartbeat, after carrying out what the last one asked for."""
        self.give_up()
        fields: dict[str, Any] = {"topic_partitions": self._reported()}
        if self._full:
            fields |= {
                "rebalance_timeout_ms": 60_000,
                "subscribed_topic_names": self.topics if self.regex is None else self.topics or [],
                "subscribed_topic_regex": self.regex,
                "server_assignor": self.assignor,
            }
        response = self.rig.heartbeat(
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            **fields,
        )
        self._full = False
        self.epoch = response.member_epoch
        self.interval_ms = response.heartbeat_interval_ms
        if response.assignment is not None:
            self.wanted = {
                topic.topic_id: set(topic.partitions) for topic in response.assignment.topic_partitions
            }
            if self.must_give_up():
                # Report before taking anything new.
                return response
            self.owned = {topic: set(numbers) for topic, numbers in self.wanted.items()}
        return response

    def must_give_up(self) -> bool:
        wanted = self.wanted
        return wanted is not None and any(
            numbers - wanted.get(topic, set()) for topic, numbers in self.owned.items()
        )

    def give_up(self) -> None:
        """Carry out the revocation (a consumer commits and calls its listener here)."""
        if self.wanted is not None:
            self.owned = {topic: set(numbers) for topic, numbers in self.wanted.items()}

    def _reported(self) -> list[Any]:
        kind = messages.ConsumerGroupHeartbeatRequest.TopicPartitions
        return [kind(topic_id=topic, partitions=sorted(numbers)) for topic, numbers in self.owned.items()]

    def leave(self, epoch: int = -1) -> Any:
        response = self.rig.heartbeat(
            member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        self.owned = {}
        self.wanted = None
        return response

    @property
    def partitions(self) -> set[tuple[bytes, int]]:
        return {(topic, number) for topic, numbers in self.owned.items() for number in numbers}


def settle(rig: Rig, members: Iterable[Member], rounds: int = 20) -> None:
    """Heartbeats from everyone until the group is stable."""
    members = list(members)
    for _ in range(rounds):
        for member in members:
            member.beat()
        rig.clock.advance_ms(1000)
        if rig.group.state_name == "Stable" and not any(member.must_give_up() for member in members):
            for member in members:
                member.beat()
            return
    raise AssertionError(f"the group is {rig.group.state_name} after {rounds} rounds")
