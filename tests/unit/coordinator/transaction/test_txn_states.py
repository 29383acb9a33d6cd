"""A transactional id from its first epoch to its last: what may follow what, and who is fenced."""

from __future__ import annotations

import pytest

from ottla.coordinator.transaction.end import EndRequest, complete, end_transaction
from ottla.coordinator.transaction.expiry import abort_timed_out, expire_ids, timed_out
from ottla.coordinator.transaction.init import check_request
from ottla.coordinator.transaction.listing import ListFilter, list_transactions
from ottla.coordinator.transaction.partitions import verify_partitions
from ottla.coordinator.transaction.records import to_record
from ottla.coordinator.transaction.service import SERDE
from ottla.coordinator.transaction.state import (
    MAX_EPOCH,
    NO_TIMEOUT,
    STATES_BY_TITLE,
    VALID_PREVIOUS,
    TransactionMetadata,
    TransactionState,
)
from ottla.errors import ErrorCode
from ottla.log.types import TopicPartition
from ottla.wire import messages
from unit.coordinator.transaction.txn_box import NOW, TIMEOUT_MS, A, B, Box, refused

S = TransactionState


def at(
    box: Box, state: TransactionState, *, epoch: int = 5, version: int = 2, **more: object
) -> tuple[int, int]:
    """Put the id into a state, whatever came before."""
    partitions = frozenset() if state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT) else frozenset({A})
    options = {
        "partitions": partitions,
        "started_ms": NOW,
        "updated_ms": NOW,
        "client_version": version,
        "previous_producer_id": 7,
        **more,
    }
    box.write(to_record(TransactionMetadata("tx", 7, epoch, TIMEOUT_MS, state, **options), box.version))
    return 7, epoch


# -- new epochs


def test_a_new_id_begins_with_epoch_zero() -> None:
    box = Box()
    assert box.init() == (1001, 0)
    txn = box.txn()
    assert (txn.state, txn.partitions, txn.started_ms, txn.updated_ms) == (S.EMPTY, frozenset(), -1, NOW)
    assert txn.previous_producer_id == 1001


def test_each_start_of_the_producer_takes_the_next_epoch() -> None:
    box = Box()
    assert [box.init() for _ in range(3)] == [(1001, 0), (1001, 1), (1001, 2)]


def test_a_producer_that_recovers_keeps_its_id_and_may_ask_twice() -> None:
    box = Box()
    box.init()
    assert box.init(expected=(1001, 0)) == (1001, 1)
    assert box.init(expected=(1001, 0)) == (1001, 1), "the answer was lost: the same again"
    assert refused(box.init, expected=(1001, 5)) is ErrorCode.PRODUCER_FENCED
    assert refused(box.init, expected=(2, 1)) is ErrorCode.PRODUCER_FENCED


def test_a_new_producer_takes_the_retry_away_from_the_old_one() -> None:
    box = Box()
    box.init()
    box.init(expected=(1001, 0))
    box.init()
    assert refused(box.init, expected=(1001, 0)) is ErrorCode.PRODUCER_FENCED


def test_used_up_epochs_give_a_new_producer_id() -> None:
    box = Box()
    at(box, S.COMPLETE_COMMIT, epoch=MAX_EPOCH - 1)
    assert box.init(expected=(7, MAX_EPOCH - 1)) == (1001, 0)
    assert box.init(expected=(7, MAX_EPOCH - 1)) == (1001, 0), "a retry with the id before"
    assert box.txn().previous_producer_id in (7, 1001)


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_nobody_begins_while_the_last_transaction_is_being_ended(state: TransactionState) -> None:
    box = Box()
    producer = at(box, state)
    assert refused(box.init) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused(box.init, expected=(1, 1)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused(box.add, producer, A) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused(box.add, (1, 1), A) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused(box.end, producer, True) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused(box.end, producer, True, version=0) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused(box.end, (1, 5), True, version=0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_open_transaction_is_aborted_before_a_new_producer_begins(version: int) -> None:
    box = Box(version)
    old = box.init()
    box.add(old, A, version=version)
    assert box.init() is None
    assert (box.txn().state, box.txn().producer_epoch) == (S.PREPARE_ABORT, 1)
    assert refused(box.end, old, True, version=0) is ErrorCode.PRODUCER_FENCED
    box.complete()
    assert box.init() == (1001, 2)
    assert refused(box.add, old, A) is ErrorCode.PRODUCER_FENCED


def test_fencing_the_last_epoch_rotates_the_producer_id() -> None:
    box = Box()
    at(box, S.ONGOING, epoch=MAX_EPOCH - 1)
    assert box.init() is None
    assert (box.txn().producer_epoch, box.txn().next_producer_id) == (MAX_EPOCH, 1001)
    box.complete()
    assert box.init() == (1001, 1)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"two_phase": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"keep_prepared": True}, ErrorCode.UNSUPPORTED_VERSION),
        (
            {"two_phase": True, "two_phase_enabled": True, "keep_prepared": True},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_what_is_wrong_with_a_request(request_: dict[str, object], code: ErrorCode) -> None:
    options = {
        "transactional_id": "tx",
        "timeout_ms": 900_000,
        "two_phase": False,
        "keep_prepared": False,
        "two_phase_enabled": False,
        "max_timeout_ms": 900_000,
    }
    assert refused(check_request, **options) is ErrorCode.NONE
    assert refused(check_request, **{**options, **request_}) is code


def test_a_two_phase_commit_has_no_timeout() -> None:
    timeout_ms = check_request(
        "tx", 5, two_phase=True, keep_prepared=False, two_phase_enabled=True, max_timeout_ms=10
    )
    assert timeout_ms == NO_TIMEOUT
    box = Box()
    box.add(box.init(timeout_ms=timeout_ms), A)
    assert timed_out(box.shard, NOW * 2) == []


# -- partitions


def test_the_first_partition_begins_the_transaction() -> None:
    box = Box()
    producer = box.init()
    box.now_ms += 10
    box.add(producer, A)
    box.now_ms += 10
    box.add(producer, B)
    txn = box.txn()
    assert (txn.state, txn.partitions, txn.started_ms, txn.updated_ms) == (
        S.ONGOING,
        {A, B},
        NOW + 10,
        NOW + 20,
    )
    written = len(box.log)
    box.add(producer, A, B)
    assert len(box.log) == written, "what is known already is not written again"


def test_partitions_are_added_by_the_producer_alone() -> None:
    box = Box()
    producer_id, epoch = box.init()
    assert refused(box.add, (9, epoch), A) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert refused(box.add, (producer_id, epoch - 1), A) is ErrorCode.PRODUCER_FENCED
    assert refused(box.add, (producer_id, epoch + 1), A) is ErrorCode.PRODUCER_FENCED
    assert refused(box.add, (producer_id, epoch), A, name="other") is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_partitions_are_verified() -> None:
    box = Box()
    producer = box.init()
    box.add(producer, A, version=0)

    def verify(producer: tuple[int, int]) -> dict[TopicPartition, ErrorCode]:
        return verify_partitions(box.shard, "tx", *producer, [A, B])

    assert verify(producer) == {A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE}
    assert refused(verify, (9, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert refused(verify, (producer[0], 3)) is ErrorCode.PRODUCER_FENCED
    box.end(producer, True, version=0)
    assert refused(verify, producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    box.complete()
    assert verify(producer) == {A: ErrorCode.TRANSACTION_ABORTABLE, B: ErrorCode.TRANSACTION_ABORTABLE}


# -- the end


@pytest.mark.parametrize("commit", [True, False])
def test_version_two_ends_with_the_next_epoch(commit: bool) -> None:
    box = Box()
    producer_id, epoch = producer = box.init()
    box.add(producer, A, B)
    ended = box.end(producer, commit)
    assert (ended.producer_id, ended.producer_epoch) == (producer_id, epoch + 1)
    assert ended.prepared == box.txn()
    assert (box.txn().partitions, box.txn().client_version) == ({A, B}, 2)
    box.complete()
    assert box.txn().state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert box.txn().partitions == frozenset()
    box.add((producer_id, epoch + 1), B)
    assert box.txn().state is S.ONGOING


@pytest.mark.parametrize("commit", [True, False])
def test_before_version_two_the_epoch_stays(commit: bool) -> None:
    box = Box()
    producer = box.init()
    box.add(producer, A, version=0)
    ended = box.end(producer, commit, version=0)
    assert (ended.producer_id, ended.producer_epoch) == (-1, -1)
    assert (box.txn().producer_epoch, box.txn().client_version) == (0, 0)
    box.complete()
    assert box.end(producer, commit, version=0).prepared is None, "asked again"
    assert refused(box.end, producer, not commit, version=0) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_what_was_prepared_is_completed_in_every_version(version: int, commit: bool) -> None:
    """The running coordinator replays its own records, not their bytes, which hold less before version 1."""
    box = Box(version)
    producer = box.init()
    box.add(producer, A, version=version)
    result = end_transaction(
        box.shard, EndRequest("tx", producer[0], producer[1], commit, version), box.now_ms
    )
    for record in result.records:
        box.shard.replay(0, -1, -1, record)
    prepared = result.response.prepared
    assert prepared is not None
    assert box.apply(complete(box.shard, prepared, box.now_ms)) is not None
    assert box.txn().state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)


INVALID, FENCED = ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("state", "commit", "again", "expected"),
    [
        (S.EMPTY, False, True, FENCED),
        (S.EMPTY, False, False, "new epoch"),
        (S.EMPTY, True, True, FENCED),
        (S.EMPTY, True, False, INVALID),
        (S.COMPLETE_ABORT, False, True, "as answered"),
        (S.COMPLETE_ABORT, False, False, "new epoch"),
        (S.COMPLETE_ABORT, True, True, INVALID),
        (S.COMPLETE_ABORT, True, False, INVALID),
        (S.COMPLETE_COMMIT, False, True, INVALID),
        (S.COMPLETE_COMMIT, False, False, "new epoch"),
        (S.COMPLETE_COMMIT, True, True, "as answered"),
        (S.COMPLETE_COMMIT, True, False, INVALID),
        (S.ONGOING, True, True, FENCED),
        (S.ONGOING, False, True, FENCED),
    ],
)
def test_the_table_of_what_may_be_ended(
    state: TransactionState, commit: bool, again: bool, expected: object
) -> None:
    box = Box()
    producer_id, epoch = at(box, state)
    sent = (producer_id, epoch - 1 if again else epoch)
    if isinstance(expected, ErrorCode):
        assert refused(box.end, sent, commit) is expected
        return
    ended = box.end(sent, commit)
    if expected == "as answered":
        assert (ended.prepared, ended.producer_epoch) == (None, epoch)
    else:
        assert (box.txn().state, ended.producer_epoch) == (S.PREPARE_ABORT, epoch + 1)
        assert box.txn().started_ms == NOW


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
@pytest.mark.parametrize("commit", [True, False])
def test_old_clients_end_only_what_is_open(state: TransactionState, commit: bool) -> None:
    box = Box()
    producer = at(box, state)
    same = state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert refused(box.end, producer, commit, version=0) is (ErrorCode.NONE if same else INVALID)
    assert refused(box.end, (producer[0], producer[1] - 1), commit, version=0) is FENCED


def test_the_end_rotates_a_used_up_producer_id() -> None:
    box = Box()
    producer = at(box, S.ONGOING, epoch=MAX_EPOCH - 1)
    ended = box.end(producer, True)
    assert (ended.producer_id, ended.producer_epoch) == (1001, 0)
    assert (box.txn().producer_id, box.txn().producer_epoch) == (7, MAX_EPOCH), (
        "markers go out for the old id"
    )
    box.complete()
    assert (box.txn().producer_id, box.txn().producer_epoch, box.txn().previous_producer_id) == (1001, 0, 7)
    again = box.end(producer, True)
    assert (again.prepared, again.producer_id, again.producer_epoch) == (None, 1001, 0)
    box.add((1001, 0), A)


def test_a_transaction_is_completed_once() -> None:
    box = Box()
    producer = box.init()
    box.add(producer, A)
    prepared = box.end(producer, True).prepared
    assert prepared is not None
    assert complete(box.shard, prepared, NOW).records
    box.complete()
    assert not complete(box.shard, prepared, NOW).records


def test_an_unknown_id_has_nothing_to_end() -> None:
    assert refused(Box().end, (1, 0), True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# -- time


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_takes_too_long_is_aborted(version: int) -> None:
    box = Box(version)
    producer = box.init()
    box.add(producer, A, version=version)
    assert timed_out(box.shard, NOW + TIMEOUT_MS) == []
    (late,) = timed_out(box.shard, NOW + TIMEOUT_MS + 1)
    box.apply(abort_timed_out(box.shard, late, NOW))
    assert (box.txn().state, box.txn().producer_epoch) == (S.PREPARE_ABORT, 1)
    assert timed_out(box.shard, NOW * 2) == []
    assert abort_timed_out(box.shard, late, NOW).records == (), "it is another by now"
    assert refused(box.end, producer, True, version=0) is FENCED


def test_ids_that_nobody_uses_are_forgotten() -> None:
    box = Box()
    for name in ("old", "older"):
        box.init(name)
    box.now_ms += 100
    box.init("new")
    box.add(box.init("busy"), A, name="busy")
    assert box.apply(expire_ids(box.shard, 1000, 10, NOW + 999)) == 0
    assert box.apply(expire_ids(box.shard, 1000, 1, NOW + 1000)) == 1
    assert box.apply(expire_ids(box.shard, 1000, 10, NOW + 1000)) == 1
    assert set(box.shard.transactions) == {"new", "busy"}
    assert set(box.reloaded().transactions) == {"new", "busy"}
    assert box.apply(expire_ids(box.shard, 1000, 10, NOW * 2)) == 1, "an open transaction keeps its id"


# -- records and lists


def test_the_records_are_kafkas() -> None:
    box = Box()
    txn = TransactionMetadata(
        "tx", 7, 5, TIMEOUT_MS, S.ONGOING, frozenset({B, A, TopicPartition("a", 2)}), 11, 12, 6, -1, 2
    )
    record = to_record(txn, 2)
    assert SERDE.key_bytes(record).hex() == "0000" + "0002" + b"tx".hex()
    value = SERDE.value_bytes(record)
    assert value is not None
    assert value.hex() == (
        "0001"  # version
        "0000000000000007" "0005" "0000ea60" "01"  # producer, timeout, state
        "03" "0261" "03" "00000000" "00000002" "00" "0262" "02" "00000001" "00"  # partitions by topic
        "000000000000000c" "000000000000000b"  # last update, start
        "02" "00" "08" "0000000000000006" "02" "02" "0002"  # previous producer id, client's version
    )  # fmt: skip
    old = SERDE.value_bytes(to_record(txn, 0))
    assert old is not None and old.startswith(bytes.fromhex("0000000000000000000700050000ea6001"))
    box.write(record)
    assert box.txn() == txn


def test_an_empty_state_has_no_partitions_at_all() -> None:
    record = to_record(TransactionMetadata("tx", 7, 0, 1), 2)
    assert isinstance(record.value, messages.TransactionLogValue)
    assert record.value.transaction_partitions is None


def test_the_table_of_transitions_is_checked() -> None:
    box = Box()
    producer = at(box, S.COMPLETE_COMMIT)
    with pytest.raises(AssertionError, match="CompleteCommit cannot become PrepareCommit"):
        box.shard.record(TransactionMetadata("tx", *producer, TIMEOUT_MS, S.PREPARE_COMMIT))
    assert set(VALID_PREVIOUS) == set(S)
    assert STATES_BY_TITLE["PrepareCommit"] is S.PREPARE_COMMIT


def test_lists_are_filtered() -> None:
    box = Box()
    box.init("orders-1")
    box.add(box.init("orders-2"), A, name="orders-2")
    box.init("payments-1")

    def found(**wanted: object) -> set[str]:
        return {txn.transactional_id for txn in list_transactions(box.shard, ListFilter(**wanted), NOW + 50)}

    assert found() == {"orders-1", "orders-2", "payments-1"}
    assert found(state_titles=["Ongoing"]) == {"orders-2"}
    assert found(state_titles=["Ongoing", "Sleeping"]) == {"orders-2"}
    assert found(state_titles=["Sleeping"]) == set()
    assert ListFilter(["Sleeping", "Empty"]).unknown_states == ["Sleeping"]
    assert found(producer_ids=[1001, 1003]) == {"orders-1", "payments-1"}
    assert found(duration_ms=50) == {"orders-1", "payments-1"}, (
        "those that never began count as old, as in Kafka"
    )
    assert found(duration_ms=49) == {"orders-1", "orders-2", "payments-1"}
    assert found(pattern="orders-.*") == {"orders-1", "orders-2"}
    assert found(pattern="orders") == set(), "the pattern is for the whole id"
    assert found(pattern="") == {"orders-1", "orders-2", "payments-1"}
    assert refused(found, pattern="(") is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_end_that_needs_a_new_id_does_nothing_without_one() -> None:
    box = Box()
    producer = at(box, S.ONGOING, epoch=MAX_EPOCH - 1)
    result = end_transaction(box.shard, EndRequest("tx", *producer, True), NOW)
    assert result.records == () and result.response.needs_producer_id
