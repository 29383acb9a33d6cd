"""Transactions through the APIs on real logs: what readers see, what zombies cannot do, what a restart completes."""

from __future__ import annotations

import gc

import pytest

from ottla.config.broker import BrokerConfig
from ottla.coordinator.transaction.state import TransactionState
from ottla.errors import ErrorCode
from ottla.log.types import TopicPartition
from unit.log.log_rig import has_open_transaction
from unit.replica.txn_scene import Producer, TxnScene

OLD, NEW = {"version": 9}, {"version": 12}


@pytest.fixture
def txns() -> TxnScene:
    scene = TxnScene()
    scene.create("t", 2)
    return scene


def test_records_are_visible_after_the_commit_and_not_before(txns: TxnScene) -> None:
    producer = txns.producer("tx")
    assert producer.send(b"a", b"b") is ErrorCode.NONE
    assert txns.committed() == []
    assert txns.log().last_stable_offset == 0
    assert producer.commit() is ErrorCode.NONE
    assert txns.committed() == [b"a", b"b"]
    assert txns.log().last_stable_offset == txns.log().log_end_offset == 3


def test_aborted_records_are_never_visible(txns: TxnScene) -> None:
    producer = txns.producer("tx")
    for round_ in range(4):
        assert producer.send(b"%d" % round_) is ErrorCode.NONE
        assert producer.end(round_ % 2 == 0) is ErrorCode.NONE
    assert txns.committed() == [b"0", b"2"]
    assert len(txns.log().aborted_transactions(0, 100)) == 2


def test_an_open_transaction_holds_back_those_behind_it(txns: TxnScene) -> None:
    slow, quick = txns.producer("slow"), txns.producer("quick")
    slow.send(b"s")
    quick.send(b"q")
    quick.commit()
    assert txns.committed() == []
    slow.abort()
    assert txns.committed() == [b"q"]


def test_old_clients_add_their_partitions_themselves(txns: TxnScene) -> None:
    producer = txns.producer("tx")
    assert producer.add(("t", 0), ("t", 1)) == [ErrorCode.NONE] * 2
    assert producer.send(b"a", **OLD) is ErrorCode.NONE
    assert producer.send(b"b", index=1, **OLD) is ErrorCode.NONE
    assert producer.commit(version=3) is ErrorCode.NONE
    assert producer.epoch == 0
    assert (txns.committed(), txns.committed(index=1)) == ([b"a"], [b"b"])
    producer.add(("t", 0))
    assert producer.send(b"c", **OLD) is ErrorCode.NONE
    assert producer.abort(version=3) is ErrorCode.NONE
    assert txns.committed() == [b"a"]


@pytest.mark.parametrize(
    ("version", "code"), [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_a_partition_that_was_not_added_is_refused(txns: TxnScene, version: int, code: ErrorCode) -> None:
    producer = txns.producer("tx")
    producer.add(("t", 1))
    assert producer.send(b"a", version=version) is code
    assert txns.log().log_end_offset == 0


def test_internal_topics_are_no_part_of_a_clients_transaction(txns: TxnScene) -> None:
    producer = txns.producer("tx")
    assert producer.add(("t", 0), ("__transaction_state", 0)) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ]


def test_a_missing_partition_fails_the_others_too(txns: TxnScene) -> None:
    producer = txns.producer("tx")
    assert producer.add(("t", 0), ("t", 7), ("nowhere", 0)) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert txns.coordinator.runtime.shard(txns.coordinator.partition_of("tx")).find("tx").partitions == set()


@pytest.mark.parametrize("options", [OLD, NEW])
def test_a_zombie_is_fenced_everywhere(txns: TxnScene, options: dict[str, int]) -> None:
    zombie = txns.producer("tx")
    zombie.add(("t", 0))
    assert zombie.send(b"open", **options) is ErrorCode.NONE
    successor = txns.producer("tx")
    assert successor.epoch > zombie.epoch
    assert zombie.send(b"late", **options) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.send(b"late", index=1, **options) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.add(("t", 1)) == [ErrorCode.PRODUCER_FENCED]
    assert zombie.commit(version=5) is ErrorCode.PRODUCER_FENCED
    assert zombie.commit(version=2) is ErrorCode.PRODUCER_FENCED
    assert zombie.commit(version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    successor.send(b"mine")
    successor.commit()
    assert txns.committed() == [b"mine"]


def test_a_late_batch_of_version_two_cannot_reopen_its_transaction(txns: TxnScene) -> None:
    producer = txns.producer("tx")
    late = Producer(txns, "tx", producer.producer_id, producer.epoch)
    producer.send(b"a")
    producer.commit()
    assert late.send(b"late", index=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert not has_open_transaction(txns.log(index=1))


def test_a_late_batch_of_an_old_client_cannot_leave_a_hanging_transaction(txns: TxnScene) -> None:
    producer = txns.producer("tx")
    producer.add(("t", 0))
    producer.abort(version=3)
    assert producer.send(b"late", **OLD) is ErrorCode.INVALID_TXN_STATE
    assert txns.log().last_stable_offset == txns.log().log_end_offset


def test_the_time_of_a_transaction_runs_out(txns: TxnScene) -> None:
    producer = txns.producer("tx", timeout_ms=30_000)
    producer.send(b"a")
    txns.advance_ms(30_000)
    assert txns.log().last_stable_offset == 0
    txns.advance_ms(11_000)
    assert txns.log().last_stable_offset == 2
    assert producer.send(b"b") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.commit() is ErrorCode.INVALID_TXN_STATE
    assert producer.abort() is ErrorCode.NONE, "it was aborted: the producer gets its epoch and goes on"
    assert producer.send(b"c") is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE
    assert txns.committed() == [b"c"]


def test_unused_ids_are_forgotten(txns: TxnScene) -> None:
    producer = txns.producer("tx")
    txns.advance_ms(7 * 86_400_000 + 3_600_000)
    assert producer.send(b"a") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert txns.producer("tx").producer_id != producer.producer_id


def test_markers_are_sent_until_every_partition_has_one(txns: TxnScene) -> None:
    producer = txns.producer("tx")
    producer.send(b"a")
    producer.send(b"b", index=1)
    txns.markers.unreachable.add(TopicPartition("t", 1))
    assert producer.commit() is ErrorCode.NONE
    assert (txns.committed(), txns.committed(index=1)) == ([b"a"], [])
    assert txns.coordinator.unfinished == 1
    assert txns.init("tx") is ErrorCode.CONCURRENT_TRANSACTIONS
    txns.markers.unreachable.clear()
    txns.advance_ms(100)
    assert txns.committed(index=1) == [b"b"]
    assert txns.coordinator.unfinished == 0


def test_a_produce_waits_a_moment_for_the_last_transaction_to_end(txns: TxnScene) -> None:
    producer = txns.producer("tx")
    producer.send(b"a")
    txns.markers.unreachable.add(TopicPartition("t", 0))
    producer.commit()
    assert producer.send(b"b", index=1) is None, "parked"
    assert txns.log(index=1).log_end_offset == 0
    txns.advance_ms(200)
    assert txns.log(index=1).log_end_offset == 0, "refused with CONCURRENT_TRANSACTIONS by then"
    txns.markers.unreachable.clear()
    txns.advance_ms(100)
    assert producer.send(b"b", index=1) is ErrorCode.NONE


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [3, 5])
def test_a_restart_completes_what_was_decided(txns: TxnScene, commit: bool, version: int) -> None:
    producer = txns.producer("tx")
    producer.add(("t", 0), ("t", 1))
    producer.send(b"a", **(OLD if version < 5 else NEW))
    producer.send(b"b", index=1, **(OLD if version < 5 else NEW))
    txns.markers.unreachable.add(TopicPartition("t", 1))
    assert producer.end(commit, version=version) is ErrorCode.NONE
    txns.restart()
    assert txns.committed() == ([b"a"] if commit else [])
    assert txns.committed(index=1) == ([b"b"] if commit else [])
    shard = txns.coordinator.runtime.shard(txns.coordinator.partition_of("tx"))
    assert shard is not None
    assert shard.require("tx").state is (
        TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    )


def test_an_open_transaction_goes_on_after_a_restart(txns: TxnScene) -> None:
    producer = txns.producer("tx")
    producer.send(b"a")
    txns.restart()
    assert txns.committed() == []
    assert producer.send(b"b") is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE
    assert txns.committed() == [b"a", b"b"]


def test_a_deleted_topic_does_not_hold_up_the_end(txns: TxnScene) -> None:
    txns.create("short")
    producer = txns.producer("tx")
    producer.send(b"a")
    producer.send(b"x", topic="short")
    txns.scene.delete_topic("short")
    assert producer.commit() is ErrorCode.NONE
    assert txns.coordinator.unfinished == 0
    assert txns.committed() == [b"a"]


def test_transactions_span_segments() -> None:
    txns = TxnScene()
    txns.create("t", 1, {"segment.bytes": "1048576"})
    committed = []
    first, second = txns.producer("first"), txns.producer("second")
    for round_ in range(8):
        for part in range(3):
            first.send(b"f%d.%d" % (round_, part))
            second.send(b"s%d.%d" % (round_, part))
            txns.log().roll()
        committed += [b"f%d.%d" % (round_, part) for part in range(3)] if round_ % 2 else []
        first.end(bool(round_ % 2))
        if round_ == 4:
            txns.restart()
        second.abort()
    assert txns.committed() == committed
    assert txns.committed(max_bytes=1) == committed
    txns.restart()
    assert txns.committed() == committed
    aborted = txns.log().aborted_transactions(0, txns.log().log_end_offset)
    assert len(aborted) == 12


def test_verification_can_be_switched_off(txns: TxnScene) -> None:
    txns.broker.config = BrokerConfig(
        {**txns.broker.config.static, "transaction.partition.verification.enable": "false"}
    )
    producer = txns.producer("tx")
    assert producer.send(b"a", **OLD) is ErrorCode.NONE, "and is left hanging, as in Kafka"
    other = txns.producer("other")
    assert other.send(b"b", **NEW) is ErrorCode.NONE
    assert other.commit() is ErrorCode.NONE


@pytest.mark.parametrize("version", [9, 11, 12])
def test_the_records_of_a_transaction_leave_no_reference_cycles(txns: TxnScene, version: int) -> None:
    """The collector stopped the event loop for 50 to 120 ms to free those of a thousand transactions."""
    producer = txns.producer("tx")
    for _ in range(2):
        producer.add(("t", 0))
        assert producer.send(b"first", version=version) is ErrorCode.NONE
        assert producer.commit() is ErrorCode.NONE
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            producer.add(("t", 0))
            assert producer.send(b"a", version=version) is ErrorCode.NONE
            assert producer.commit() is ErrorCode.NONE
        assert gc.collect() < 50
    finally:
        gc.enable()
