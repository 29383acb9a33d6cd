"""The lead goes to another node and comes back: what was not committed vanishes, what was committed stays."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller import operations
from ottla.controller.controller import Controller
from ottla.controller.result import ControllerResult
from ottla.errors import ErrorCode
from ottla.metadata.bootstrap import bootstrap_records
from ottla.raft.types import CommittedBatch
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire.messages import CreateTopicsRequest, TopicRecord
from unit.controller.controller_harness import (
    Answers,
    FakeLog,
    broker_record,
    committed,
    registration,
    settings_with,
)


def create(name: str) -> Any:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=60_000)


def topic_record(name: str) -> Any:
    return TopicRecord(name=name, topic_id=name.encode().rjust(16, b"\1"))


class TruncatingLog(FakeLog):
    """A log whose uncommitted end another leader has cut off."""

    def truncate(self) -> None:
        del self.batches[self.committed :]
        last_base, records = self.batches[-1]
        self.log_end_offset = last_base + len(records)

    def commit_one(self) -> None:
        assert self.listener is not None
        base_offset, records = self.batches[self.committed]
        self.committed += 1
        self.listener.handle_commit([committed(base_offset, self.leader_epoch, records)])


@pytest.fixture
def log() -> TruncatingLog:
    return TruncatingLog()


@pytest.fixture
def controller(log: TruncatingLog, clock: VirtualClock) -> Controller:
    made = Controller(log, clock, settings_with(), bootstrap_records=bootstrap_records())
    log.listener = made
    made.handle_leader_change(1, 1)
    log.commit()
    log.batches.append((log.log_end_offset, [broker_record(1)]))
    log.log_end_offset += 1
    made.handle_leader_change(None, 2)
    log.commit()
    log.leader_epoch = 3
    made.handle_leader_change(1, 3)
    return made


def test_truncated_records_are_undone_and_their_offsets_used_again(
    controller: Controller, log: TruncatingLog, answers: Answers
) -> None:
    controller.handle(create("a"), answers.done, answers.failed)
    log.commit()
    end = log.log_end_offset
    controller.handle(create("b"), answers.done, answers.failed)
    controller.handle(create("c"), answers.done, answers.failed)
    controller.handle_leader_change(2, 4)
    assert [error.code for error in answers.errors] == [ErrorCode.NOT_CONTROLLER] * 2
    assert set(controller.image.topics.by_name) == {"a"}
    log.truncate()
    # Another leader's records take the same place.
    controller.handle_commit([committed(end, 4, [topic_record("d")])])
    assert set(controller.image.topics.by_name) == {"a", "d"}
    assert controller.image.offset == end


def test_a_part_of_an_operation_may_stay(
    controller: Controller, log: TruncatingLog, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "MAX_RECORDS_PER_OPERATION", 1)
    records = [topic_record("x"), topic_record("y"), topic_record("z")]
    controller._operations.run(
        lambda: ControllerResult(records, None, atomic=False), answers.done, answers.failed
    )
    log.commit_one()
    log.commit_one()
    controller.handle_leader_change(2, 4)
    assert [error.code for error in answers.errors] == [ErrorCode.NOT_CONTROLLER]
    assert set(controller.image.topics.by_name) == {"x", "y"}
    # And the log goes on right behind it.
    last = controller.image.offset
    controller.handle_commit([CommittedBatch(last + 1, last + 1, 4, 0, 0, [topic_record("w")])])
    assert set(controller.image.topics.by_name) == {"w", "x", "y"}


def test_a_registration_that_was_not_committed_is_made_again(
    controller: Controller, log: TruncatingLog, answers: Answers
) -> None:
    controller.register_broker(registration(5), answers.done, answers.failed)
    controller.handle_leader_change(2, 4)
    assert 5 not in controller.image.brokers
    log.truncate()
    log.leader_epoch = 5
    controller.handle_leader_change(1, 5)
    controller.register_broker(registration(5), answers.done, answers.failed)
    log.commit()
    assert answers.responses[0].broker_epoch == controller.image.brokers[5].epoch


def test_a_controller_that_lost_the_lead_is_active_again_when_it_regains_it(
    controller: Controller, log: TruncatingLog
) -> None:
    controller.handle_leader_change(2, 4)
    assert not controller.active
    log.leader_epoch = 5
    controller.handle_leader_change(1, 5)
    controller.handle_leader_change(2, 6)
    assert not controller.active
    log.leader_epoch = 7
    controller.handle_leader_change(1, 7)
    assert controller.active
