"""The checker of histories: for every anomaly a history that holds it, and the same without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.testing.chaos.checker import check
from ottla.testing.chaos.cycles import cyclic_parts
from ottla.testing.chaos.history import (
    Fault,
    GroupOffsets,
    History,
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


def send(value: str, offset: int, outcome: Outcome = OK, partition: str = "t-0", txn: str = "") -> Send:
    client, _, number = value.partition(" of ")[0].rpartition("/")
    return Send(client, int(number), partition, value, outcome, offset, txn)


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
    assert kinds(send("p/0", 0), poll((0, "p/0")), last((1, "q/0"))) == {"lost write"}


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
    reads = [last((0, "p/0"), (1, "p/0")), last((0, "c/0 of p/0"), (1, "c/1 of p/0"), partition="o-0")]
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
    copies = last((0, "c/0 of p/0"), (1, "c/1 of p/0"), partition="o-0")
    assert kinds(originals, copies) == {"copied twice"}
    assert kinds(originals, last((0, "c/0 of p/0"), (1, "d/0 of p/0"), partition="o-0")) == set()


def test_not_copied() -> None:
    originals = last((0, "p/0"), (1, "p/1"))
    copy = last((0, "c/0 of p/0"), partition="o-0")
    assert kinds(originals, copy, GroupOffsets("c", {"t-0": 2})) == {"not copied"}
    assert kinds(originals, copy, GroupOffsets("c", {"t-0": 1})) == set()


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
    assert crossing(Transaction("x", "x", OK, 1, 2, 3), Transaction("y", "y", OK, 4, 5, 6)) == {"write cycle"}


def test_transactions_that_overlapped_may_interleave() -> None:
    assert crossing(Transaction("x", "x", OK, 1, 5, 6), Transaction("y", "y", OK, 2, 5, 6)) == set()


def test_transactions_that_read_each_other_are_a_cycle() -> None:
    x = Transaction("x", "x", OK, 1, 2, 9, reads=("y/0",))
    y = Transaction("y", "y", OK, 1, 2, 9, reads=("x/0",))
    sends = [send("x/0", 0, txn="x"), send("y/0", 0, partition="t-1", txn="y")]
    reads = [last((0, "x/0")), last((0, "y/0"), partition="t-1")]
    assert kinds(x, y, *sends, *reads) == {"write cycle"}


def test_cycles_are_found_whole() -> None:
    edges = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": set(), "f": {"f"}}
    assert sorted(map(sorted, cyclic_parts(edges))) == [["a", "b", "c"], ["f"]]


def test_a_history_comes_back_from_its_file(tmp_path: Path) -> None:
    operations: list[Operation] = [
        send("p/0", 0),
        poll((0, "p/0"), ended=1.5, group="g"),
        Transaction("x", "x", FAILED, 1, 2, 3, ("p/0",)),
        GroupOffsets("g", {"t-0": 1}),
        Renewal("p", 1),
        Fault("kill", "leader 1", 1, 2),
    ]
    with Recorder(tmp_path / "history.jsonl") as recorder:
        for operation in operations:
            recorder.add(operation)
    assert recorder.acknowledged == recorder.polled == 1
    assert read_history(tmp_path / "history.jsonl") == recorder.history == History.of(operations)
