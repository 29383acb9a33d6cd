"""The controller's runtime: order, commit, timeouts, and what happens when another node leads."""

from __future__ import annotations

from typing import Any

from ottla.controller.controller import Controller
from ottla.controller.result import MAX_RECORDS_PER_OPERATION
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.bootstrap import bootstrap_records
from ottla.metadata.image import EMPTY_IMAGE
from ottla.raft.types import OffsetAndEpoch
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire.messages import (
    AllocateProducerIdsRequest,
    BeginTransactionRecord,
    BrokerHeartbeatRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    PartitionRecord,
    TopicRecord,
    UnregisterBrokerRequest,
)
from unit.controller.controller_harness import (
    Answers,
    FakeLog,
    broker_record,
    committed,
    registration,
    settings_with,
)

NODE = 1


def create(name: str, timeout_ms: int = 60_000) -> Any:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)


def lead(controller: Controller, log: FakeLog) -> int:
    """Become active, with a registered and unfenced broker; gives its epoch."""
    controller.handle_leader_change(NODE, 1)
    answers = Answers()
    controller.register_broker(registration(NODE), answers.done, answers.failed)
    log.commit()
    epoch: int = answers.responses[0].broker_epoch
    heartbeat = BrokerHeartbeatRequest(
        broker_id=NODE, broker_epoch=epoch, current_metadata_offset=log.log_end_offset - 1
    )
    controller.broker_heartbeat(heartbeat, answers.done, answers.failed)
    log.commit()
    assert not answers.responses[1].is_fenced
    return epoch


def test_activation_writes_the_bootstrap_records_and_is_over_when_they_are_committed(
    controller: Controller, metadata_log: FakeLog
) -> None:
    controller.handle_leader_change(NODE, 1)
    assert not controller.active
    assert controller.image.metadata_version == 30
    assert len(metadata_log.batches) == 1
    metadata_log.commit()
    assert controller.active


def test_a_restart_on_an_existing_log_writes_nothing(controller: Controller, metadata_log: FakeLog) -> None:
    controller.handle_commit([committed(0, 1, [*bootstrap_records(), broker_record(1)])])
    controller.handle_leader_change(NODE, 2)
    assert controller.active
    assert not metadata_log.batches


def test_an_answer_comes_when_its_records_are_committed(
    controller: Controller, metadata_log: FakeLog, answers: Answers
) -> None:
    lead(controller, metadata_log)
    controller.handle(create("a"), answers.done, answers.failed)
    assert "a" in controller.image.topics.by_name
    assert not answers.responses
    metadata_log.commit()
    assert answers.responses[0].topics[0].error_code == 0


def test_a_request_sees_what_the_one_before_it_decided(
    controller: Controller, metadata_log: FakeLog, answers: Answers
) -> None:
    lead(controller, metadata_log)
    controller.handle(create("a"), answers.done, answers.failed)
    controller.handle(create("a"), answers.done, answers.failed)
    # The second wrote nothing, but its response is only true once the first is committed.
    assert not answers.responses
    metadata_log.commit()
    assert [answer.topics[0].error_code for answer in answers.responses] == [
        0,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ]


def test_a_request_that_writes_nothing_is_answered_at_once(
    controller: Controller, metadata_log: FakeLog, answers: Answers
) -> None:
    lead(controller, metadata_log)
    controller.handle(create("bad name"), answers.done, answers.failed)
    assert answers.responses[0].topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_request_times_out_but_its_change_stays(
    controller: Controller, metadata_log: FakeLog, answers: Answers, clock: VirtualClock
) -> None:
    lead(controller, metadata_log)
    controller.handle(create("a", timeout_ms=500), answers.done, answers.failed)
    clock.advance_ms(499)
    assert not answers.errors
    clock.advance_ms(1)
    assert [error.code for error in answers.errors] == [ErrorCode.REQUEST_TIMED_OUT]
    metadata_log.commit()
    assert not answers.responses
    assert "a" in controller.image.topics.by_name


def test_a_committed_request_does_not_time_out(
    controller: Controller, metadata_log: FakeLog, answers: Answers, clock: VirtualClock
) -> None:
    lead(controller, metadata_log)
    controller.handle(create("a", timeout_ms=500), answers.done, answers.failed)
    metadata_log.commit()
    clock.advance_ms(1000)
    assert len(answers.responses) == 1
    assert not answers.errors


def test_who_does_not_lead_refuses(controller: Controller, answers: Answers) -> None:
    controller.handle(create("a"), answers.done, answers.failed)
    controller.handle_leader_change(2, 1)
    controller.handle(create("a"), answers.done, answers.failed)
    assert [error.code for error in answers.errors] == [ErrorCode.NOT_CONTROLLER] * 2


def test_who_loses_the_lead_forgets_what_was_not_committed(
    controller: Controller, metadata_log: FakeLog, answers: Answers
) -> None:
    lead(controller, metadata_log)
    controller.handle(create("a"), answers.done, answers.failed)
    controller.handle_leader_change(2, 5)
    assert [error.code for error in answers.errors] == [ErrorCode.NOT_CONTROLLER]
    assert not controller.active
    assert "a" not in controller.image.topics.by_name
    # The new leader had it after all.
    base_offset, records = metadata_log.batches[-1]
    controller.handle_commit([committed(base_offset, 5, records)])
    assert "a" in controller.image.topics.by_name


def test_being_told_of_the_same_lead_again_changes_nothing(
    controller: Controller, metadata_log: FakeLog, answers: Answers
) -> None:
    lead(controller, metadata_log)
    controller.handle(create("a"), answers.done, answers.failed)
    controller.handle_leader_change(NODE, 1)
    metadata_log.commit()
    assert len(answers.responses) == 1
    assert controller.active


def test_a_log_that_refuses_leaves_the_image_alone(
    controller: Controller, metadata_log: FakeLog, answers: Answers
) -> None:
    lead(controller, metadata_log)
    before = controller.image
    metadata_log.refuse = ApiException(ErrorCode.NOT_LEADER_OR_FOLLOWER, "no")
    controller.handle(create("a"), answers.done, answers.failed)
    assert [error.code for error in answers.errors] == [ErrorCode.NOT_CONTROLLER]
    assert controller.image is before


def test_waiting_operations_are_bounded(metadata_log: FakeLog, clock: VirtualClock, answers: Answers) -> None:
    controller = Controller(
        metadata_log, clock, settings_with(), bootstrap_records=bootstrap_records(), max_pending=3
    )
    metadata_log.listener = controller
    lead(controller, metadata_log)
    for name in "abcd":
        controller.handle(create(name), answers.done, answers.failed)
    assert [error.code for error in answers.errors] == [ErrorCode.REQUEST_TIMED_OUT]
    assert "d" not in controller.image.topics.by_name
    metadata_log.commit()
    controller.handle(create("d"), answers.done, answers.failed)
    metadata_log.commit()
    assert len(answers.responses) == 4


def test_a_big_restart_is_written_in_several_batches(
    controller: Controller, metadata_log: FakeLog, answers: Answers
) -> None:
    epoch = lead(controller, metadata_log)
    topic_id = bytes(15) + b"\x55"
    count = MAX_RECORDS_PER_OPERATION + 5
    directory = controller.image.brokers[NODE].directories[0]
    metadata_log.append([TopicRecord(name="big", topic_id=topic_id)])
    records = [
        PartitionRecord(
            topic_id=topic_id,
            partition_id=index,
            replicas=[NODE],
            isr=[NODE],
            leader=NODE,
            leader_epoch=0,
            partition_epoch=0,
            directories=[directory],
        )
        for index in range(count)
    ]
    controller.handle_leader_change(None, 1)
    controller.handle_commit(
        [committed(metadata_log.log_end_offset, 1, [TopicRecord(name="big", topic_id=topic_id)])]
    )
    controller.handle_commit([committed(metadata_log.log_end_offset + 1, 1, records)])
    controller.handle_leader_change(NODE, 2)
    written = len(metadata_log.batches)
    controller.register_broker(
        registration(NODE, incarnation=9, previous_epoch=epoch), answers.done, answers.failed
    )
    batches = [len(batch) for _, batch in metadata_log.batches[written:]]
    assert batches == [MAX_RECORDS_PER_OPERATION, 6]
    metadata_log.committed = written
    metadata_log.commit()
    assert len(answers.responses) == 1


def test_a_snapshot_replaces_the_image(controller: Controller) -> None:
    controller.handle_commit([committed(0, 1, [TopicRecord(name="old", topic_id=bytes(15) + b"\x07")])])
    controller.handle_load_snapshot(
        OffsetAndEpoch(50, 3), [committed(0, 3, bootstrap_records()), committed(0, 3, [broker_record(1)])]
    )
    assert set(controller.image.brokers) == {1}
    assert not controller.image.topics.by_name
    assert (controller.image.offset, controller.image.epoch) == (49, 3)


def test_an_open_transaction_is_aborted_by_the_next_leader(
    controller: Controller, metadata_log: FakeLog
) -> None:
    controller.handle_commit([committed(0, 1, bootstrap_records())])
    topic = TopicRecord(name="half", topic_id=bytes(15) + b"\x07")
    controller.handle_commit([committed(6, 1, [BeginTransactionRecord(name="x"), topic])])
    assert "half" in controller.image.topics.by_name
    controller.handle_leader_change(NODE, 2)
    assert [record.NAME for record in metadata_log.records] == ["AbortTransactionRecord"]
    assert "half" not in controller.image.topics.by_name


def test_deletion_and_producer_ids_and_unregistration_through_the_runtime(
    controller: Controller, metadata_log: FakeLog, answers: Answers
) -> None:
    epoch = lead(controller, metadata_log)
    controller.handle(create("a"), answers.done, answers.failed)
    controller.handle(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), answers.done, answers.failed)
    controller.handle(
        AllocateProducerIdsRequest(broker_id=NODE, broker_epoch=epoch), answers.done, answers.failed
    )
    controller.handle(UnregisterBrokerRequest(broker_id=NODE), answers.done, answers.failed)
    metadata_log.commit()
    assert len(answers.responses) == 4
    assert not answers.errors
    assert controller.image.topics == EMPTY_IMAGE.topics
    assert controller.image.producer_ids.next == 1000
    assert not controller.image.brokers


def test_controlled_shutdown_of_the_only_broker(
    controller: Controller, metadata_log: FakeLog, answers: Answers
) -> None:
    epoch = lead(controller, metadata_log)
    controller.handle(create("a"), answers.done, answers.failed)
    metadata_log.commit()
    request = BrokerHeartbeatRequest(
        broker_id=NODE,
        broker_epoch=epoch,
        current_metadata_offset=metadata_log.log_end_offset,
        want_shut_down=True,
    )
    for _ in range(2):
        controller.broker_heartbeat(request, answers.done, answers.failed)
        metadata_log.commit()
    assert [answer.should_shut_down for answer in answers.responses[1:]] == [False, True]
