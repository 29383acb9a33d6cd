"""Queues at the level of the protocol: acquire, accept, release, reject, renew, time out, and start again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from integration.share_member import ACCEPT, REJECT, RELEASE, RENEW, ShareMember, acquired, values
from ottla.errors import ErrorCode
from ottla.testing.process import BrokerProcess


class Broker(Protocol):
    """Ours, or Apache Kafka's."""

    @property
    def bootstrap(self) -> str: ...


SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "60000",
}


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("queues") / "data", settings=SETTINGS).start()
    try:
        yield process
        assert process.running, f"the broker died during the tests\n{process.log}"
        assert process.stop() == 0, process.log
        assert "Traceback" not in process.log, process.log
    finally:
        process.kill()


def make(broker: Broker, topic: str, *, partitions: int = 1, **group: str) -> None:
    """A topic, and a share group of the same name that begins with its first record."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
    configure(broker, topic, **({"share.auto.offset.reset": "earliest"} | group))


def configure(broker: Broker, group: str, **settings: str) -> None:
    resource = ConfigResource(
        ResourceType.GROUP,
        group,
        incremental_configs=[
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in settings.items()
        ],
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    next(iter(admin.incremental_alter_configs([resource]).values())).result(60)


def produce(broker: Broker, topic: str, count: int, start: int = 0, partition: int = 0) -> None:
    # All in one batch, however long it takes to say them: `flush` waits for no linger.
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 10_000})
    for number in range(start, start + count):
        producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(60) == 0


Member = Callable[[BrokerProcess, str], ShareMember]


@pytest.fixture
def member() -> Iterator[Member]:
    """Makes members of the share group that has a topic's name; their connections end with the test."""
    with contextlib.ExitStack() as stack:

        def make_member(broker: BrokerProcess, topic: str) -> ShareMember:
            return stack.enter_context(
                contextlib.closing(ShareMember(broker.host, broker.port, topic, topic))
            )

        yield make_member


def test_accepted_records_are_gone_and_new_ones_come(
    queues: BrokerProcess, topic: str, member: Member
) -> None:
    make(queues, topic)
    produce(queues, topic, 10)
    one = member(queues, topic).join()
    part = one.fetch()
    assert acquired(part) == [(0, 9, 1)]
    assert values(part) == [str(number).encode() for number in range(10)]
    assert one.acknowledge(0, 9, [ACCEPT]) is ErrorCode.NONE
    assert acquired(one.fetch(max_wait_ms=50)) == []
    produce(queues, topic, 2, start=10)
    assert acquired(one.fetch()) == [(10, 11, 1)]
    one.leave()


def test_released_records_come_again_and_count(queues: BrokerProcess, topic: str, member: Member) -> None:
    make(queues, topic)
    produce(queues, topic, 10)
    one = member(queues, topic).join()
    assert acquired(one.fetch()) == [(0, 9, 1)]
    assert one.acknowledge(3, 5, [RELEASE]) is ErrorCode.NONE
    part = one.fetch()
    assert acquired(part) == [(3, 5, 2)]
    assert values(part) == [b"3", b"4", b"5"]


def test_rejected_records_never_come_again(queues: BrokerProcess, topic: str, member: Member) -> None:
    make(queues, topic)
    produce(queues, topic, 4)
    one = member(queues, topic).join()
    assert acquired(one.fetch()) == [(0, 3, 1)]
    assert one.acknowledge(0, 3, [REJECT, RELEASE, REJECT, ACCEPT]) is ErrorCode.NONE
    assert acquired(one.fetch()) == [(1, 1, 2)]
    assert one.acknowledge(1, 1, [ACCEPT]) is ErrorCode.NONE
    assert acquired(one.fetch(max_wait_ms=50)) == []


def test_acknowledgements_ride_on_a_fetch(queues: BrokerProcess, topic: str, member: Member) -> None:
    make(queues, topic)
    produce(queues, topic, 3)
    one = member(queues, topic).join()
    assert acquired(one.fetch()) == [(0, 2, 1)]
    produce(queues, topic, 2, start=3)
    part = one.fetch(acks=[(0, 2, [ACCEPT])])
    assert part.acknowledge_error_code == 0
    assert acquired(part) == [(3, 4, 1)]


def test_two_members_never_hold_the_same_record(queues: BrokerProcess, topic: str, member: Member) -> None:
    make(queues, topic)
    for number in range(20):
        produce(queues, topic, 1, start=number)
    one, two = member(queues, topic).join(), member(queues, topic).join()
    held = []
    for turn in range(4):
        held += acquired((one, two)[turn % 2].fetch(max_records=5, batch_size=5))
    offsets = [offset for first, last, _ in held for offset in range(first, last + 1)]
    assert sorted(offsets) == list(range(20))
    assert all(count == 1 for _, _, count in held)


def test_a_record_limit_is_strict_and_a_batch_is_not(
    queues: BrokerProcess, topic: str, member: Member
) -> None:
    make(queues, topic)
    produce(queues, topic, 10)
    one = member(queues, topic).join()
    assert acquired(one.fetch(max_records=3, share_acquire_mode=1)) == [(0, 2, 1)]
    assert acquired(one.fetch(max_records=3, share_acquire_mode=0)) == [(3, 9, 1)]


@pytest.mark.slow
def test_a_lock_ends_and_the_record_goes_to_another(
    queues: BrokerProcess, topic: str, member: Member
) -> None:
    make(queues, topic, **{"share.record.lock.duration.ms": "1000"})
    produce(queues, topic, 2)
    one, two = member(queues, topic).join(), member(queues, topic).join()
    begun = time.monotonic()
    part = one.fetch_raw()
    assert part.acquisition_lock_timeout_ms == 1000
    # The next to hold them may take its time.
    configure(queues, topic, **{"share.record.lock.duration.ms": "60000"})
    assert acquired(two.fetch()) == [(0, 1, 2)]
    assert time.monotonic() - begun > 0.8
    assert one.acknowledge(0, 1, [ACCEPT]) is ErrorCode.INVALID_RECORD_STATE
    assert two.acknowledge(0, 1, [ACCEPT]) is ErrorCode.NONE


@pytest.mark.slow
def test_a_renewed_lock_holds_on(queues: BrokerProcess, topic: str, member: Member) -> None:
    make(queues, topic, **{"share.record.lock.duration.ms": "4000"})
    produce(queues, topic, 1)
    one, two = member(queues, topic).join(), member(queues, topic).join()
    assert acquired(one.fetch()) == [(0, 0, 1)]
    configure(queues, topic, **{"share.record.lock.duration.ms": "60000"})
    assert one.acknowledge(0, 0, [RENEW], renew=True) is ErrorCode.NONE
    # Longer than the lock of before.
    assert acquired(two.fetch(max_wait_ms=4500)) == []
    assert one.acknowledge(0, 0, [ACCEPT]) is ErrorCode.NONE


def test_renewal_needs_its_version_and_its_flag(queues: BrokerProcess, topic: str, member: Member) -> None:
    make(queues, topic)
    produce(queues, topic, 1)
    one = member(queues, topic).join()
    assert acquired(one.fetch()) == [(0, 0, 1)]
    assert one.acknowledge(0, 0, [RENEW], version=1) is ErrorCode.INVALID_REQUEST
    assert one.acknowledge(0, 0, [RENEW]) is ErrorCode.INVALID_REQUEST
    configure(queues, topic, **{"share.renew.acknowledge.enable": "false"})
    assert one.acknowledge(0, 0, [RENEW], renew=True) is ErrorCode.INVALID_RECORD_STATE


def test_too_many_deliveries_archive_a_record(queues: BrokerProcess, topic: str, member: Member) -> None:
    make(queues, topic, **{"share.delivery.count.limit": "2"})
    produce(queues, topic, 2)
    one = member(queues, topic).join()
    for count in (1, 2):
        assert acquired(one.fetch()) == [(0, 1, count)]
        assert one.acknowledge(0, 1, [RELEASE]) is ErrorCode.NONE
    assert acquired(one.fetch(max_wait_ms=50)) == []
    produce(queues, topic, 1, start=2)
    assert acquired(one.fetch()) == [(2, 2, 1)]


def test_sessions_are_checked(queues: BrokerProcess, topic: str, member: Member) -> None:
    make(queues, topic)
    produce(queues, topic, 1)
    one = member(queues, topic).join()
    assert one.fetch_raw(session_epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert one.acknowledge(0, 0, [ACCEPT], session_epoch=0) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert one.fetch_raw(acks=[(0, 0, [ACCEPT])]).error_code == ErrorCode.INVALID_REQUEST
    assert acquired(one.fetch()) == [(0, 0, 1)]
    assert one.fetch_raw(session_epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert one.acknowledge(0, 0, [ACCEPT], session_epoch=-1) is ErrorCode.NONE
    assert one.acknowledge(0, 0, [ACCEPT], session_epoch=-1) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_bad_acknowledgements_are_refused(queues: BrokerProcess, topic: str, member: Member) -> None:
    make(queues, topic)
    produce(queues, topic, 3)
    one, two = member(queues, topic).join(), member(queues, topic).join()
    assert acquired(one.fetch()) == [(0, 2, 1)]
    two.fetch(max_wait_ms=10)
    assert two.acknowledge(0, 2, [ACCEPT]) is ErrorCode.INVALID_RECORD_STATE
    assert one.acknowledge(0, 7, [ACCEPT]) is ErrorCode.INVALID_REQUEST
    assert one.acknowledge(2, 0, [ACCEPT]) is ErrorCode.INVALID_REQUEST
    assert one.acknowledge(0, 2, [ACCEPT, ACCEPT]) is ErrorCode.INVALID_REQUEST
    assert one.acknowledge(0, 2, [9]) is ErrorCode.INVALID_REQUEST
    assert one.acknowledge(0, 2, [ACCEPT]) is ErrorCode.NONE
    assert one.acknowledge(0, 2, [ACCEPT]) is ErrorCode.NONE, "what is done with is let pass"


def test_a_lost_connection_gives_its_records_back(queues: BrokerProcess, topic: str, member: Member) -> None:
    make(queues, topic)
    produce(queues, topic, 5)
    one, two = member(queues, topic).join(), member(queues, topic).join()
    assert acquired(one.fetch()) == [(0, 4, 1)]
    assert acquired(two.fetch(max_wait_ms=10)) == []
    one.close()
    assert acquired(two.fetch()) == [(0, 4, 2)]


@pytest.mark.slow
def test_a_group_begins_where_its_config_says(queues: BrokerProcess, topic: str, member: Member) -> None:
    make(queues, topic, **{"share.auto.offset.reset": "latest"})
    produce(queues, topic, 3)
    one = member(queues, topic).join()
    # Long enough for the group to have found where the topic ends.
    assert acquired(one.fetch(max_wait_ms=2000)) == []
    produce(queues, topic, 1, start=3)
    assert acquired(one.fetch()) == [(3, 3, 1)]


def test_a_group_begins_by_duration(queues: BrokerProcess, topic: str, member: Member) -> None:
    make(queues, topic, **{"share.auto.offset.reset": "by_duration:PT1H"})
    producer = Producer({"bootstrap.servers": queues.bootstrap})
    now_ms = int(time.time() * 1000)
    for age_ms in (7_200_000, 1_800_000, 0):
        producer.produce(topic, b"x", timestamp=now_ms - age_ms)
        producer.flush(60)
    one = member(queues, topic).join()
    assert acquired(one.fetch()) == [(1, 2, 1)]


@pytest.mark.slow
def test_partitions_are_shared_out_and_shared(queues: BrokerProcess, topic: str, member: Member) -> None:
    make(queues, topic, partitions=3)
    one = member(queues, topic).join(lambda assigned: any(len(parts) == 3 for parts in assigned.values()))
    others = [member(queues, topic).join() for _ in range(2)]
    one.join(lambda assigned: all(len(parts) == 1 for parts in assigned.values()))
    assert sorted(one.assigned[one.topic_id] + [p for o in others for p in o.assigned[one.topic_id]]) == [
        0,
        1,
        2,
    ]
    fourth = member(queues, topic).join()
    assert fourth.assigned[one.topic_id]


@pytest.mark.slow
def test_what_was_acknowledged_stays_so_after_kill_9(
    start_broker: Callable[..., BrokerProcess], topic: str, member: Member
) -> None:
    broker = start_broker(settings=SETTINGS)
    make(broker, topic)
    produce(broker, topic, 20)
    one = member(broker, topic).join()
    assert acquired(one.fetch()) == [(0, 19, 1)]
    assert one.acknowledge(0, 4, [ACCEPT]) is ErrorCode.NONE
    assert one.acknowledge(8, 9, [REJECT]) is ErrorCode.NONE
    assert one.acknowledge(10, 10, [RELEASE]) is ErrorCode.NONE
    broker.kill()
    one.close()
    broker.start()
    again = member(broker, topic).join()
    held = acquired(again.fetch())
    # What nobody acknowledged was never kept: it counts as not delivered yet.
    assert held == [(5, 7, 1), (10, 10, 2), (11, 19, 1)]
