"""The checker of histories: for every anomaly a history that holds it, and the same without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.testing.checks.checker import check
from ottla.testing.checks.cycles import cyclic_parts
from ottla.testing.checks.history import (
    Commit,
    Delivery,
    Fault,
    FilledTable,
    GroupOffsets,
    History,
    MirroredPartition,
    Operation,
    Outcome,
    Poll,
    Recorder,
    Renewal,
    Send,
    Transaction,
    read_history,
)

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN


def send(
    value: str,
    offset: int,
    outcome: Outcome = OK,
    partition: str = "t-0",
    txn: str = "",
    copy_of: str = "",
) -> Send:
    client, _, number = value.rpartition("/")
    return Send(client, int(number), partition, value, outcome, offset, txn, copy_of=copy_of)


def copy(value: str, offset: int, original: str) -> Send:
    return send(value, offset, partition="o-0", copy_of=original)


def poll(
    *records: tuple[int, str], client: str = "r", session: str = "0", partition: str = "t-0", **more: object
) -> Poll:
    rows = tuple((partition, offset, value) for offset, value in records)
    return Poll(client, session, bool(more.pop("committed", True)), rows, **more)  # type: ignore[arg-type]


def last(*records: tuple[int, str], partition: str = "t-0") -> Poll:
    return poll(*records, client="last", partition=partition, final=True)


def kinds(*operations: Operation) -> set[str]:
    return {anomaly.kind for anomaly in check(History.of(operations))}


def test_a_good_history_has_none() -> None:
    assert (
        kinds(
            send("p/0", 0),
            send("p/1", 1),
            send("q/0", 2, UNKNOWN),
            Transaction("x", "x", OK, 1, 2, 3),
            send("x/0", 3, txn="x"),
            send("x/1", 0, partition="t-1", txn="x"),
            Transaction("y", "y", FAILED, 1, 0, 3),
            send("y/0", 5, txn="y"),
            poll((0, "p/0"), (1, "p/1"), ended=1.0),
            poll((3, "x/0"), ended=2.5),
            last((0, "p/0"), (1, "p/1"), (3, "x/0")),
            last((0, "x/1"), partition="t-1"),
        )
        == set()
    )


def test_lost_write() -> None:
    assert kinds(send("p/0", 0), send("p/1", 1), poll((1, "p/1"))) == {"lost write"}


def test_a_write_that_was_read_and_is_gone_is_lost() -> None:
    found = kinds(send("p/0", 0), poll((0, "p/0")), last((1, "q/0")))
    assert found == {"lost write", "read and gone"}


def test_a_write_of_a_committed_transaction_is_lost() -> None:
    history = [send("x/0", 0, txn="x"), send("x/1", 1, txn="x"), last((2, "q/0"))]
    assert kinds(*history, Transaction("x", "x", OK)) == {"lost write"}
    assert kinds(*history, Transaction("x", "x", UNKNOWN)) == set()
    assert kinds(*history, Transaction("x", "x", FAILED)) == set()


def test_unseen() -> None:
    assert kinds(send("p/0", 0), send("p/1", 1), poll((0, "p/0"))) == {"unseen"}


def test_a_write_nobody_was_promised_may_be_missing() -> None:
    assert kinds(send("p/0", -1, UNKNOWN), send("p/1", 0), last((0, "p/1"))) == set()


def test_duplicate() -> None:
    assert kinds(send("p/0", 0), poll((0, "p/0"), (1, "p/0"))) == {"duplicate"}


def test_what_a_producer_sends_again_in_a_new_epoch_is_not_the_brokers_duplicate() -> None:
    first = Send("p", 0, "t-0", "p/0", OK, 1, began=1.0, ended=3.0)
    reads: list[Operation] = [copy("c/0", 0, "p/0"), copy("c/1", 1, "p/0")]
    reads += [last((0, "p/0"), (1, "p/0")), last((0, "c/0"), (1, "c/1"), partition="o-0")]
    assert kinds(first, *reads, Renewal("p", 2.0, "t-0", ("p/0",))) == set()
    for other in (Renewal("p", 2.0), Renewal("p", 2.0, "t-0", ("p/1",)), Renewal("p", 2.0, "t-1", ("p/0",))):
        assert kinds(first, *reads, other) == {"duplicate", "copied twice"}
    thrice = last((0, "p/0"), (1, "p/0"), (2, "p/0"))
    assert kinds(first, thrice, Renewal("p", 2.0, "t-0", ("p/0",))) == {"duplicate"}


def test_a_record_that_is_not_where_it_was_acknowledged() -> None:
    assert kinds(send("p/0", 0), poll((1, "p/0"))) == {"duplicate"}


def test_inconsistent_offsets() -> None:
    found = kinds(send("p/0", 0), poll((0, "p/0")), poll((0, "q/0"), client="s"))
    assert found == {"inconsistent offsets"}


def test_poll_skip() -> None:
    everything = last((0, "p/0"), (1, "p/1"), (2, "p/2"))
    assert kinds(poll((0, "p/0"), (2, "p/2")), everything) == {"poll skip"}
    assert kinds(poll((0, "p/0")), poll((2, "p/2")), everything) == {"poll skip"}
    assert kinds(poll((0, "p/0")), poll((2, "p/2"), session="1"), everything) == set()


def test_going_past_a_marker_or_an_aborted_record_is_no_skip() -> None:
    history = [Transaction("x", "x", FAILED), send("x/0", 1, txn="x"), last((0, "p/0"), (3, "p/1"))]
    assert kinds(poll((0, "p/0"), (3, "p/1")), *history) == set()


def test_a_dirty_reader_must_not_skip_either() -> None:
    everything = last((0, "p/0"), (1, "p/1"), (2, "p/2"))
    assert kinds(poll((0, "p/0"), (2, "p/2"), committed=False), everything) == {"poll skip"}


@pytest.mark.parametrize("then", [0, 1])
def test_non_monotonic_poll(then: int) -> None:
    values = ["p/0", "p/1"]
    first, second = poll((0, "p/0"), (1, "p/1")), poll((then, values[then]))
    assert kinds(first, second) == {"non-monotonic poll"}
    assert kinds(first, poll((then, values[then]), session="1")) == set()


def test_non_monotonic_send() -> None:
    everything = last((4, "p/1"), (5, "p/0"))
    assert kinds(send("p/0", 5), send("p/1", 4), everything) == {"non-monotonic send"}
    elsewhere = [send("p/1", 4, partition="t-1"), last((4, "p/1"), partition="t-1")]
    assert kinds(send("p/0", 5), last((5, "p/0")), *elsewhere) == set()


def test_aborted_read() -> None:
    history = [Transaction("x", "x", FAILED, 1, 0, 3), send("x/0", 0, txn="x")]
    assert kinds(*history, poll((0, "x/0"))) == {"aborted read"}
    assert kinds(*history, poll((0, "x/0"), committed=False)) == set()


def test_precommitted_read() -> None:
    history = [Transaction("x", "x", OK, 1, 5, 6), send("x/0", 0, txn="x")]
    assert kinds(*history, poll((0, "x/0"), ended=4.0)) == {"precommitted read"}
    assert kinds(*history, poll((0, "x/0"), ended=5.5)) == set()
    assert kinds(*history, poll((0, "x/0"), ended=4.0, committed=False)) == set()


def test_torn_transaction() -> None:
    history = [
        Transaction("x", "x", UNKNOWN, 1, 5, 6),
        send("x/0", 0, txn="x"),
        send("x/1", 0, partition="t-1", txn="x"),
    ]
    assert kinds(*history, last((0, "x/0"))) == {"torn transaction"}
    assert kinds(*history, last((0, "x/0")), last((0, "x/1"), partition="t-1")) == set()
    assert kinds(*history, last((1, "p/0"))) == set()


def test_copied_twice() -> None:
    originals = last((0, "p/0"))
    copies = last((0, "c/0"), (1, "c/1"), partition="o-0")
    assert kinds(originals, copies, copy("c/0", 0, "p/0"), copy("c/1", 1, "p/0")) == {"copied twice"}
    two = last((0, "c/0"), (1, "d/0"), partition="o-0")
    assert kinds(originals, two, copy("c/0", 0, "p/0"), copy("d/0", 1, "p/0")) == set()


def test_not_copied() -> None:
    history = [
        last((0, "p/0"), (1, "p/1")),
        copy("c/0", 0, "p/0"),
        last((0, "c/0"), partition="o-0"),
    ]
    assert kinds(*history, GroupOffsets("c", {"t-0": 2})) == {"not copied"}
    assert kinds(*history, GroupOffsets("c", {"t-0": 1})) == set()
    assert kinds(*history, GroupOffsets("c", {"t-0": 0})) == {"copied ahead"}


def test_copies_out_of_order_and_of_nothing() -> None:
    sends = [copy("c/0", 0, "p/1"), copy("c/1", 1, "p/0")]
    copies = last((0, "c/0"), (1, "c/1"), partition="o-0")
    assert kinds(last((0, "p/0"), (1, "p/1")), copies, *sends) == {"copies out of order"}
    assert kinds(last((1, "p/1")), copies, *sends) == {"copy of nothing"}


def crossing(x: Transaction, y: Transaction) -> set[str]:
    """Two transactions that stand in opposite orders in two partitions."""
    return kinds(
        x,
        y,
        send("x/0", 0, txn="x"),
        send("y/0", 1, txn="y"),
        send("y/1", 0, partition="t-1", txn="y"),
        send("x/1", 1, partition="t-1", txn="x"),
        last((0, "x/0"), (1, "y/0")),
        last((0, "y/1"), (1, "x/1"), partition="t-1"),
    )


def test_write_cycle() -> None:
    assert crossing(Transaction("x", "x", OK, 1, 2, 3), Transaction("y", "y", OK, 4, 5, 6)) == {
        "write cycle (G0)"
    }


def test_transactions_that_overlapped_may_interleave() -> None:
    assert crossing(Transaction("x", "x", OK, 1, 5, 6), Transaction("y", "y", OK, 2, 5, 6)) == set()


def test_transactions_that_read_each_other_are_a_cycle() -> None:
    x = Transaction("x", "x", OK, 1, 2, 9, reads=("y/0",))
    y = Transaction("y", "y", OK, 1, 2, 9, reads=("x/0",))
    sends = [send("x/0", 0, txn="x"), send("y/0", 0, partition="t-1", txn="y")]
    reads = [last((0, "x/0")), last((0, "y/0"), partition="t-1")]
    assert kinds(x, y, *sends, *reads) == {"read cycle (G1c)"}


def test_a_transaction_that_read_from_one_that_had_not_begun() -> None:
    """The cycle goes through a third one: x wrote before y began, y wrote what z read, z ended before x began."""
    sends = [
        send("x/0", 0, txn="x"),
        send("y/0", 1, txn="y"),
        send("y/1", 0, partition="t-1", txn="y"),
        send("z/0", 0, partition="t-2", txn="z"),
    ]
    reads = [last((0, "x/0"), (1, "y/0")), last((0, "y/1"), partition="t-1")]
    reads.append(last((0, "z/0"), partition="t-2"))
    x, y = Transaction("x", "x", OK, 4, 5, 6), Transaction("y", "y", OK, 7, 8, 9)
    early = Transaction("z", "z", OK, 1, 2, 3, reads=("y/1",))
    assert kinds(x, y, early, *sends, *reads) == {"read cycle (G1c)"}
    late = Transaction("z", "z", OK, 10, 11, 12, reads=("y/1",))
    assert kinds(x, y, late, *sends, *reads) == set()


def taking(name: str, first: int, end: int, began: float, outcome: Outcome = OK) -> Transaction:
    return Transaction(name, name, outcome, began, began + 1, began + 2, (), "g", {"t-0": (first, end)})


def test_two_transactions_that_take_the_same_records_lose_an_update() -> None:
    assert kinds(taking("x", 0, 5, 1), taking("y", 5, 8, 4), taking("z", 9, 12, 7)) == set()
    assert kinds(taking("x", 0, 5, 1), taking("y", 0, 8, 1)) == {"lost update (G-single)"}
    assert kinds(taking("x", 0, 5, 1), taking("y", 3, 8, 4)) == {"lost update (G-single)"}
    assert kinds(taking("x", 0, 5, 1), taking("y", 0, 8, 1, FAILED)) == set()


def test_the_outcome_of_a_transaction_that_was_never_answered_shows_in_what_is_read() -> None:
    """Its producer died; its records can be read, so it was committed and belongs to the graph."""
    x, y = taking("x", 0, 5, 1), taking("y", 0, 8, 1, UNKNOWN)
    assert kinds(x, y) == set()
    assert kinds(x, y, send("y/0", 0, txn="y"), last((0, "y/0"))) == {"lost update (G-single)"}


def test_writes_that_skip_each_others_reads_are_an_anti_dependency_cycle() -> None:
    """Each takes the records of one partition that the other had taken already, before the other's commit."""
    both = {"t-0": (0, 2), "t-1": (0, 2)}
    x = Transaction("x", "x", OK, 1, 2, 3, (), "g", {**both, "t-1": (0, 4)})
    y = Transaction("y", "y", OK, 1, 2, 3, (), "g", {**both, "t-0": (0, 4)})
    (found,) = kinds(x, y)
    assert found in ("lost update (G-single)", "anti-dependency cycle (G2)")


# -- records


def test_a_record_that_nobody_sent() -> None:
    history = History.of([send("p/0", 0), last((0, "p/0"), (1, "p/9"))])
    assert check(history) == []
    history.every_send_is_known = True
    assert [anomaly.kind for anomaly in check(history)] == ["foreign record"]


def test_a_reader_that_was_shown_more_than_its_limit() -> None:
    everything = last((0, "p/0"), (1, "p/1"))
    assert kinds(everything, poll((0, "p/0"), (1, "p/1"), limit=2)) == set()
    assert kinds(everything, poll((0, "p/0"), (1, "p/1"), limit=1)) == {"read beyond the limit"}


def test_a_reader_that_missed_the_beginning() -> None:
    everything = last((0, "p/0"), (1, "p/1"))
    assert kinds(everything, poll((1, "p/1"))) == set()
    assert kinds(everything, poll((1, "p/1"), start=0)) == {"poll skip"}


def test_a_record_that_was_read_and_is_gone() -> None:
    assert kinds(last((1, "p/1")), poll((0, "p/0"), (1, "p/1"))) == {"read and gone"}


def test_an_aborted_record_stays_in_the_log() -> None:
    history = [Transaction("x", "x", FAILED), send("x/0", 0, txn="x")]
    dirty = poll((0, "x/0"), client="last", committed=False, final=True)
    assert kinds(*history, dirty) == set()
    assert kinds(*history, poll((1, "p/0"), committed=False, final=True)) == {"lost write"}


# -- groups


def committed(offset: int, began: float, outcome: Outcome = OK, **more: bool) -> Commit:
    return Commit("g", "t-0", offset, outcome, began, began + 1, **more)


def test_a_group_that_went_back() -> None:
    assert kinds(committed(9, 1), committed(12, 3)) == set()
    assert kinds(committed(9, 1), committed(4, 3)) == {"group went back"}
    assert kinds(committed(9, 1), committed(4, 3, seen=True)) == {"group went back"}
    # A commit that was never answered may have come late, but only with its own offset.
    assert kinds(committed(9, 1), committed(4, 3, seen=True), committed(4, 0, UNKNOWN)) == set()
    assert kinds(committed(9, 1), committed(4, 3, seen=True), committed(3, 0, UNKNOWN)) == {"group went back"}


def test_a_record_that_no_member_of_a_group_was_given() -> None:
    everything = last((0, "p/0"), (1, "p/1"), (2, "p/2"))
    first = poll((0, "p/0"), group="g", client="a")
    second = poll((2, "p/2"), group="g", client="b")
    assert kinds(everything, first, second) == {"group skip"}
    assert kinds(everything, first, second, poll((1, "p/1"), group="g", client="c")) == set()


def test_a_member_that_begins_before_the_committed_offset() -> None:
    everything = last((0, "p/0"), (1, "p/1"))
    first = poll((0, "p/0"), (1, "p/1"), group="g", client="a", since=0.5)
    again = poll((0, "p/0"), group="g", client="b", since=4.0)
    early = poll((0, "p/0"), group="g", client="b", since=1.5)
    assert kinds(everything, first, again, committed(2, 1)) == {"group repeat"}
    assert kinds(everything, first, early, committed(2, 1)) == set()
    assert kinds(everything, first, again, committed(2, 1, UNKNOWN)) == set()


# -- queues


def given(
    offset: int, began: float, accepted: Outcome | None = OK, epoch: int = 1, count: int = 1
) -> Delivery:
    return Delivery("t-0", offset, count, began, epoch, accepted, began + 1)


def test_a_record_of_a_queue_that_comes_again_after_its_acknowledgement() -> None:
    history = [send("p/0", 0), last((0, "p/0"))]
    assert kinds(*history, given(0, 1)) == set()
    assert kinds(*history, given(0, 1), given(0, 3)) == {"acknowledged twice"}
    assert kinds(*history, given(0, 1), given(0, 3, None)) == {"delivered after its acknowledgement"}
    # A leader of before may give out what its successor knows to be done.
    assert kinds(*history, given(0, 1, epoch=2), given(0, 3, UNKNOWN, epoch=1)) == set()
    # Who acknowledges late what another one was given meanwhile does no harm.
    assert kinds(*history, Delivery("t-0", 0, 1, 1, 1, OK, 9), given(0, 3)) == set()


def test_a_record_that_is_lost_from_a_queue() -> None:
    history = History.of([send("p/0", 0), send("p/1", 1), last((0, "p/0"), (1, "p/1")), given(0, 1)])
    assert [anomaly.kind for anomaly in check(history)] == ["lost from a queue"]
    history.deliveries.append(given(1, 1, None, count=5))
    assert [anomaly.kind for anomaly in check(history)] == ["lost from a queue"]
    history.delivery_limit = 5
    assert check(history) == []


SOURCE = (send("p/0", 0), send("p/1", 1), send("p/2", 3), last((0, "p/0"), (1, "p/1"), (3, "p/2")))
"""Offset 2 is a marker of a transaction."""


def mirrored(*records: tuple[int, str], **groups: tuple[int, int]) -> MirroredPartition:
    return MirroredPartition("west", "t-0", records, groups)


def test_a_mirror_has_each_record_once_and_in_order() -> None:
    assert kinds(*SOURCE, mirrored((0, "p/0"), (1, "p/1"), (2, "p/2"))) == set()
    assert kinds(*SOURCE, mirrored((0, "p/0"), (2, "p/2"))) == {"not mirrored"}
    assert kinds(*SOURCE, mirrored((0, "p/0"), (1, "p/1"), (2, "p/1"), (3, "p/2"))) == {"mirrored twice"}
    assert kinds(*SOURCE, mirrored((0, "p/1"), (1, "p/0"), (2, "p/2"))) == {"mirrored out of order"}
    whole = [(0, "p/0"), (1, "p/1"), (2, "p/2")]
    assert kinds(*SOURCE, mirrored(*whole, (3, "other/0"))) == {"mirrored and foreign"}


@pytest.mark.parametrize(("here", "there"), [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3)])
def test_a_group_goes_on_with_the_same_record_at_a_mirrors_target(here: int, there: int) -> None:
    whole = [(0, "p/0"), (1, "p/1"), (2, "p/2")]
    assert kinds(*SOURCE, mirrored(*whole, g=(here, there))) == set()
    assert kinds(*SOURCE, mirrored(*whole, g=(here, there + 1 if there < 3 else 0))) == {"unequal position"}


def filled(*rows: tuple[int, str]) -> FilledTable:
    return FilledTable("rows", ("t-0",), tuple(("t-0", offset, value) for offset, value in rows))


def test_a_table_has_each_record_once() -> None:
    assert kinds(*SOURCE, filled((3, "p/2"), (0, "p/0"), (1, "p/1"))) == set()
    assert kinds(*SOURCE, filled((0, "p/0"), (1, "p/1"))) == {"not in a table"}
    assert kinds(*SOURCE, filled((0, "p/0"), (1, "p/1"), (1, "p/1"), (3, "p/2"))) == {"twice in a table"}
    assert kinds(*SOURCE, filled((0, "p/0"), (1, "p/1"), (3, "p/2"), (4, "x/0"))) == {"foreign in a table"}
    # The right value at the wrong place.
    assert kinds(*SOURCE, filled((0, "p/0"), (1, "p/1"), (2, "p/2"))) == {
        "foreign in a table",
        "not in a table",
    }


def test_cycles_are_found_whole() -> None:
    edges = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": set(), "f": {"f"}}
    assert sorted(map(sorted, cyclic_parts(edges))) == [["a", "b", "c"], ["f"]]


def test_a_history_comes_back_from_its_file(tmp_path: Path) -> None:
    operations: list[Operation] = [
        send("p/0", 0),
        poll((0, "p/0"), ended=1.5, group="g"),
        Transaction("x", "x", FAILED, 1, 2, 3, ("p/0",), "g", {"t-0": (0, 1)}),
        committed(1, 2),
        given(0, 1),
        given(1, 1, None),
        GroupOffsets("g", {"t-0": 1}),
        Renewal("p", 1),
        mirrored((0, "p/0"), g=(1, 1)),
        filled((0, "p/0")),
        Fault("kill", "leader 1", 1, 2),
    ]
    with Recorder(tmp_path / "history.jsonl") as recorder:
        for operation in operations:
            recorder.add(operation)
    assert recorder.acknowledged == recorder.polled == 1
    assert read_history(tmp_path / "history.jsonl") == recorder.history == History.of(operations)
