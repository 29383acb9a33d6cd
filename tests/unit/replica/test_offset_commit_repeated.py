"""OffsetCommit requests that are like the one before: the same bytes come back, and the same records are in the log."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from typing import Any

import pytest

from ottla.api.groups import offset_commit
from ottla.broker.coordinator_log import CoordinatedPartitions
from ottla.coordinator.group.service import GroupCoordinator
from ottla.coordinator.group.shard import SERDE, GroupShard
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.metadata.topic_names import OFFSETS_TOPIC
from ottla.net.buffers import ReceiveBuffers
from ottla.net.connection import ClientInfo, Connection
from ottla.net.dispatch import Dispatcher
from ottla.records.codecs import Compression
from ottla.security.authorizer import Authorizer
from ottla.security.quotas.managers import ClientQuotas
from ottla.testing.memfs import MemFs
from ottla.wire.apis import ApiKey
from ottla.wire.codec import decode
from ottla.wire.headers import decode_response_header, encode_request
from ottla.wire.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from unit.net.net_harness import Transport
from unit.replica.replica_scene import NODE, Scene, make_scene

GROUP = "a-group"


def coordinate(scene: Scene, **options: Any) -> GroupCoordinator:
    """Give the broker a group coordinator on its own logs."""

    def new_shard(context: Any) -> GroupShard:
        return GroupShard(context, scene.broker.config, scene.replicas.image)

    runtime = CoordinatorRuntime(
        topic=OFFSETS_TOPIC,
        clock=scene.clock,
        executor=scene.executor,  # type: ignore[arg-type]
        post=lambda call, *args: call(*args),
        partitions=CoordinatedPartitions(scene.replicas, scene.clock),
        serde=SERDE,
        new_shard=new_shard,
        image=scene.replicas.image,
        **{"linger_ms": 0, **options},
    )
    groups = scene.broker.groups = GroupCoordinator(runtime, scene.broker.config)
    scene.publishers.append(lambda delta, image: runtime.publish(delta, image, NODE))
    return groups


class Consumer:
    """A connection to a broker, fed by hand. With `learns` False, every request is decoded as a whole."""

    def __init__(
        self,
        *,
        learns: bool = True,
        beside: Consumer | None = None,
        replicas: tuple[int, ...] = (NODE,),
        **options: Any,
    ) -> None:
        self.learns = learns
        if beside is None:
            self.scene = make_scene()
            self.scene.ready_at_once = True
            self.scene.clock.advance(1)
            self.scene.broker.quotas = ClientQuotas()
            self.groups = coordinate(self.scene, **options)
            self.scene.create_topic(OFFSETS_TOPIC, 1, {"cleanup.policy": "compact"}, replicas)
            self.scene.create_topic("t", 4)
            self.scene.create_topic("u", 1)
            self.settle()
            self.dispatcher = Dispatcher(self.scene.broker, {ApiKey.OFFSET_COMMIT: offset_commit.API})
        else:
            self.scene, self.dispatcher, self.groups = beside.scene, beside.dispatcher, beside.groups
        self.transport = Transport()
        self.connection = Connection(
            self.dispatcher,
            ReceiveBuffers(),
            self.scene.clock,
            call_soon=lambda callback: self.scene.clock.call_later(0, callback),
            max_request_bytes=1 << 20,
            client=ClientInfo("c-1", "10.0.0.2", "10.0.0.1", 9092, "PLAINTEXT", False),
            on_lost=lambda lost: None,
        )
        self.connection.connection_made(self.transport)
        self.sent = 0

    def settle(self) -> None:
        for _ in range(20):
            self.scene.turn()
            if not self.scene.executor.run():
                break

    def commit(
        self,
        *offsets: int,
        version: int = 9,
        group: str = GROUP,
        member: tuple[str, int] = ("", -1),
        leader_epoch: int = 5,
        metadata: str | None = "",
        topics: Sequence[str] = ("t",),
        **fields: Any,
    ) -> None:
        """Commit an offset for each of the first partitions of each topic."""
        self.sent += 1
        by_name = self.scene.broker.image.topics.by_name
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member[0],
            generation_id_or_member_epoch=member[1],
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=name,
                    topic_id=by_name[name].id if name in by_name else bytes(16),
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offset,
                            committed_leader_epoch=leader_epoch,
                            committed_metadata=metadata,
                        )
                        for index, offset in enumerate(offsets)
                    ],
                )
                for name in topics
            ],
            **fields,
        )
        self.send(b"".join(encode_request(self.sent, "a client", request, version)))

    def send(self, frame: bytes) -> None:
        if not self.learns:
            self.connection.repeated_commit = None
        self.connection.get_buffer(-1)[: len(frame)] = frame
        self.connection.buffer_updated(len(frame))
        self.scene.clock.advance_ms(3)

    def log(self) -> bytes:
        log = self.scene.replicas.find((OFFSETS_TOPIC, 0)).local_log()
        return bytes(log.read(0, 1 << 20).records)

    def state(self) -> list[Any]:
        shard = self.groups.runtime.shard(0)
        return [] if shard is None else list(shard.offsets.of_group(GROUP))

    def errors(self, version: int = 9) -> list[int]:
        found = []
        written, at = bytes(self.transport.written), 0
        while at < len(written):
            size = int.from_bytes(written[at : at + 4], "big")
            answer = written[at + 4 : at + 4 + size]
            at += 4 + size
            _, offset = decode_response_header(ApiKey.OFFSET_COMMIT, version, answer)
            response = decode(OffsetCommitResponse, version, answer[offset:])
            found.append(response.topics[0].partitions[0].error_code)
        return found

    def decoded(self) -> int:
        """Requests that were decoded as a whole: only those pass the place where requests are learnt from."""
        return 64 - self.connection.requests_until_learning


Pair = tuple[Consumer, Consumer]


@pytest.fixture
def pair() -> Pair:
    return Consumer(), Consumer(learns=False)


def assert_same(pair: Pair) -> None:
    repeated, whole = pair
    assert repeated.transport.written == whole.transport.written
    assert repeated.log() == whole.log()
    assert repeated.state() == whole.state()
    assert repeated.transport.answers() == list(range(1, repeated.sent + 1))


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_answers_with_the_same_bytes(pair: Pair, version: int, partitions: int) -> None:
    for consumer in pair:
        for number in range(200):
            offsets = [number * 1_000_003**index % 2**62 for index in range(partitions)]
            consumer.commit(*offsets, version=version)
    assert_same(pair)
    repeated, _ = pair
    assert len(repeated.state()) == partitions
    counted = [each.dispatcher.counters(ApiKey.OFFSET_COMMIT) for each in pair]
    assert [each.taken for each in counted] == [each.versions[version] for each in counted] == [200, 200]
    assert [each.local.count for each in counted] == [4, 4]
    # The first two, and those whose parts are timed.
    assert repeated.decoded() < 10


def test_several_topics_in_one_request(pair: Pair) -> None:
    for consumer in pair:
        for number in range(10):
            consumer.commit(number, topics=("t", "u"))
            consumer.commit(-1, topics=("t", "u"))
    assert_same(pair)
    assert pair[0].decoded() < 4


def test_a_request_that_differs_in_anything_else_is_not_mistaken(pair: Pair) -> None:
    for consumer in pair:
        for _ in range(3):
            consumer.commit(7)
        consumer.commit(8, leader_epoch=6)
        consumer.commit(9, metadata="why")
        consumer.commit(9, metadata="x" * 5000)
        consumer.commit(9, metadata=None)
        consumer.commit(10, group="b-group")
        consumer.commit(11, member=("m", 3))
        consumer.commit(12, group_instance_id="i")
        consumer.commit(13, topics=("u",))
        consumer.commit(14, topics=("unknown",))
        consumer.commit(15, 16)
        consumer.commit(1, 2, 3, 4, 5)
        consumer.commit(17)
    assert_same(pair)
    assert len(set(pair[0].errors())) > 2


def test_commits_with_a_retention_time_expire(pair: Pair) -> None:
    for consumer in pair:
        for number in range(5):
            consumer.commit(number, version=4, retention_time_ms=1000)
    assert_same(pair)
    assert pair[0].connection.repeated_commit is None


def _generation(consumer: Consumer, generation: int, *members: str) -> None:
    shard = consumer.groups.runtime.shard(0)
    assert shard is not None
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=generation,
        protocol="range",
        leader=members[0],
        current_state_timestamp=0,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member, rebalance_timeout=10_000, session_timeout=10_000
            )
            for member in members
        ],
    )
    shard.replay(0, -1, -1, CoordinatorRecord(GroupMetadataKey(group=GROUP), value, 3))


def test_a_member_commits_until_its_generation_ends(pair: Pair) -> None:
    for consumer in pair:
        _generation(consumer, 3, "m")
        for number in range(6):
            consumer.commit(number, member=("m", 3))
        _generation(consumer, 4, "m")
        consumer.commit(6, member=("m", 3))
        consumer.commit(7, member=("m", 4))
        _generation(consumer, 4, "n")
        consumer.commit(8, member=("m", 4))
    assert_same(pair)
    assert pair[0].errors() == [0] * 6 + [22, 0, 25]
    assert [each[2].offset for each in pair[0].state()] == [7]


def test_a_deleted_topic_is_refused_and_one_of_the_same_name_gets_its_own_id(pair: Pair) -> None:
    for consumer in pair:
        for number in range(4):
            consumer.commit(number)
        consumer.scene.delete_topic("t")
        consumer.settle()
        consumer.commit(4)
        consumer.scene.create_topic("t", 4)
        consumer.settle()
        consumer.commit(5)
    assert_same(pair)
    assert pair[0].errors() == [0, 0, 0, 0, 3, 0]
    assert pair[0].state()[0][2].topic_id == pair[0].scene.topic_ids["t"]


def test_a_failed_disk_refuses_the_commit_and_a_reload_shows_the_one_before(pair: Pair) -> None:
    for consumer in pair:
        for number in range(4):
            consumer.commit(number)

        def full(operation: str, path: str) -> None:
            if operation == "write":
                raise OSError(errno.EIO, "the disk is gone", path)

        consumer.scene.fs.fault = full
        consumer.commit(4)
        consumer.commit(5)
    repeated, whole = pair
    assert repeated.transport.written == whole.transport.written
    assert repeated.errors()[:4] == [0] * 4 and 0 not in repeated.errors()[4:]


def test_with_other_replicas_the_response_waits_for_them() -> None:
    pair = Consumer(replicas=(1, 2)), Consumer(replicas=(1, 2), learns=False)
    for consumer in pair:
        partition = consumer.scene.replicas.find((OFFSETS_TOPIC, 0))
        for number in range(6):
            consumer.commit(number)
            assert len(consumer.transport.answers()) == number
            log = partition.local_log()
            partition.follower_fetched(log, 2, log.log_end_offset, start_offset=0, broker_epoch=1)
            consumer.settle()
    assert_same(pair)


def test_a_commit_does_not_overtake_one_that_waits_in_a_batch() -> None:
    first = Consumer(linger_ms=-1)
    second = Consumer(beside=first)
    for number in range(200):
        for consumer in (first, second):
            consumer.sent += 1
        one, two = (_frame(each, number * 2 + at) for at, each in enumerate((first, second)))
        for consumer, frame in ((first, one), (second, two)):
            consumer.connection.get_buffer(-1)[: len(frame)] = frame
            consumer.connection.buffer_updated(len(frame))
        first.settle()
        assert [each[2].offset for each in first.state()] == [number * 2 + 1]
    assert first.transport.answers() == second.transport.answers() == list(range(1, 201))


def _frame(consumer: Consumer, offset: int) -> bytes:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(group_id=GROUP, topics=[topic])
    return b"".join(encode_request(consumer.sent, "a client", request, 9))


def test_compressed_batches_stay_compressed() -> None:
    pair = Consumer(compression=Compression.GZIP), Consumer(compression=Compression.GZIP, learns=False)
    for consumer in pair:
        for number in range(6):
            consumer.commit(number)
    assert_same(pair)


@pytest.mark.parametrize(
    "configs",
    [
        {"message.timestamp.type": "LogAppendTime"},
        {"compression.type": "gzip"},
        {"flush.messages": "1"},
        {"max.message.bytes": "100"},
        {"segment.bytes": "1048576", "segment.ms": "5"},
    ],
)
def test_settings_of_the_offsets_topic_count(pair: Pair, configs: dict[str, str]) -> None:
    for consumer in pair:
        for number in range(4):
            consumer.commit(number)
        consumer.scene.set_topic_config(OFFSETS_TOPIC, {"cleanup.policy": "compact", **configs})
        for number in range(4, 8):
            consumer.commit(number)
            consumer.settle()
    assert_same(pair)


def test_rights_and_quotas_take_the_whole_way(pair: Pair) -> None:
    consumer, _ = pair
    for number in range(4):
        consumer.commit(number)
    decoded = consumer.decoded()
    consumer.scene.broker.authorizer = Authorizer("", allow_everyone_if_no_acl_found=False)
    consumer.scene.broker.authorizer.complete_loading()
    consumer.commit(5)
    assert consumer.errors()[-1] == 30 and consumer.decoded() == decoded + 1
    consumer.scene.broker.authorizer = None
    consumer.scene.broker.quotas.update({(("client-id", "a client"),): {"request_percentage": 100.0}})
    consumer.commit(6)
    assert consumer.errors()[-1] == 0 and consumer.decoded() == decoded + 2


def _reopened(consumer: Consumer, fs: MemFs) -> list[Any]:
    """What a broker on this disk loads."""
    scene = make_scene(fs, consumer.scene.clock)
    groups = coordinate(scene)
    topic_ids = consumer.scene.topic_ids
    scene.create_topic(OFFSETS_TOPIC, 1, {"cleanup.policy": "compact"}, topic_id=topic_ids[OFFSETS_TOPIC])
    for _ in range(20):
        scene.turn()
        if not scene.executor.run():
            break
    shard = groups.runtime.shard(0)
    assert shard is not None
    return list(shard.offsets.of_group(GROUP))


def test_every_acknowledged_commit_is_there_after_kill_9() -> None:
    consumer = Consumer()
    for number in range(50):
        consumer.commit(number, number + 1)
        assert _reopened(consumer, consumer.scene.fs.kill()) == consumer.state()


@pytest.mark.parametrize("seed", range(60))
def test_a_power_loss_leaves_the_last_flushed_commit_or_a_later_one(seed: int) -> None:
    """As with any other record: what was not flushed may be lost, from the end on."""
    chance = random.Random(seed)
    consumer = Consumer()
    log = consumer.scene.replicas.find((OFFSETS_TOPIC, 0)).local_log()
    flushed = -1
    for number in range(chance.randrange(5, 40)):
        consumer.commit(number)
        if chance.random() < 0.2:
            log.flush()
            flushed = number
    found = [each[2].offset for each in _reopened(consumer, consumer.scene.fs.crash(chance))]
    assert found == [] if flushed < 0 and not found else flushed <= found[0] <= number
