"""The simulator's own parts: time that jumps, links that are cut, and a checker that sees what it should."""

import asyncio
import random

import pytest

from ottla.log.types import TopicPartition
from ottla.testing.sim.checker import check
from ottla.testing.sim.history import Commit, Delivery, History, Outcome, Poll, Send, Transaction
from ottla.testing.sim.loop import SimLoop, StuckError
from ottla.testing.sim.network import Network
from ottla.testing.sim.plan import CLIENTS, Plan, drawn, properties
from ottla.testing.sim.process import Process

TP = TopicPartition("plain", 0)


@pytest.fixture
def loop():
    loop = SimLoop()  # type: ignore[abstract]
    yield loop
    loop.close()


def test_an_hour_passes_at_once(loop):
    async def nap():
        await asyncio.sleep(3600)
        return loop.time()

    assert loop.run_until_complete(nap(), timeout_s=4000) == 3600


def test_waiting_for_nothing_is_told(loop):
    async def wait_for_ever():
        await loop.create_future()

    with pytest.raises(StuckError):
        loop.run_until_complete(wait_for_ever(), timeout_s=10)


def test_a_process_that_is_held_goes_on_where_it_was(loop):
    process, ticks = Process("a.1", "a"), []

    async def tick():
        while True:
            ticks.append(loop.time())
            await asyncio.sleep(1)

    loop.spawn(process, tick())
    loop.run_for(2.5)
    process.hold()
    loop.run_for(10)
    assert ticks == [0, 1, 2]
    loop.resume(process)
    loop.run_for(0.5)
    assert ticks == [0, 1, 2, 12.5]
    process.die()
    loop.run_for(10)
    assert len(ticks) == 4


class Echo(asyncio.Protocol):
    def __init__(self, heard):
        self.heard = heard

    def data_received(self, data):
        self.heard.append(data)

    def connection_lost(self, exc):
        self.heard.append(exc)


def connected(loop, network, heard):
    server, client = Process("s.1", "s"), Process("c.1", "c")
    network.listen(server, ("s", 1), lambda transport: transport.open(Echo(heard)))
    task = loop.spawn(client, network.connect(lambda: Echo([]), "s", 1))
    loop.run_for(1)
    return server, client, task.result()[0]


def test_bytes_wait_while_a_link_is_cut(loop):
    network, heard = Network(loop, random.Random(1)), []
    _, _, transport = connected(loop, network, heard)
    network.cut("c", "s")
    transport.write(b"hello")
    loop.run_for(30)
    assert heard == []
    network.heal()
    loop.run_for(2)
    assert heard == [b"hello"]


def test_the_death_of_a_process_is_heard_at_the_other_end(loop):
    network, heard = Network(loop, random.Random(1)), []
    _, client, transport = connected(loop, network, heard)
    transport.write(b"last words")
    client.die()
    network.died(client)
    loop.run_for(1)
    assert heard[0] == b"last words"
    assert isinstance(heard[1], ConnectionResetError)


def test_a_plan_follows_from_its_seed():
    assert drawn(5) == drawn(5)
    plans = [drawn(seed) for seed in range(60)]
    assert {plan.layout for plan in plans} == {
        ("broker,controller",) * 3,
        ("broker,controller",) * 4,
        (*("broker,controller",) * 3, "broker"),
        (*("controller",) * 3, *("broker",) * 3),
    }
    assert {plan.dynamic for plan in plans} == {True, False}
    assert {name for plan in plans for name in plan.clients} == set(CLIENTS)


def test_voters_are_in_the_configuration_or_in_the_log():
    fixed, in_the_log = (properties(Plan(1, dynamic=dynamic), 1) for dynamic in (False, True))
    assert fixed["controller.quorum.voters"] == "1@n1:9093,2@n2:9093,3@n3:9093"
    assert "controller.quorum.voters" not in in_the_log
    assert in_the_log["controller.quorum.bootstrap.servers"] == "n1:9093,n2:9093,n3:9093"


# -- the checker


def sent(value, **options):
    return Send("p0", TP, (value,), outcome=Outcome.OK, **options)


def violations(history, log, committed=None):
    logs = {TP: log}
    return check(history, logs, logs if committed is None else {TP: committed})


def test_a_good_history_is_good():
    history = History(sends=[sent(b"p0:0", base_offset=0), sent(b"p0:1", base_offset=1)])
    history.polls = [Poll("r", TP, False, [(0, b"p0:0")], 1)]
    history.commits = [Commit("g", TP, 1, Outcome.OK, 1, 2), Commit("g", TP, 2, Outcome.OK, 3, 4)]
    assert violations(history, [(0, b"p0:0"), (1, b"p0:1")]) == []


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ([(0, b"p0:0")], "is not in"),
        ([(0, b"p0:0"), (1, b"p0:1"), (2, b"p0:1")], "stands 2 times"),
        ([(0, b"p0:1"), (1, b"p0:0")], "after a later one"),
        ([(0, b"p0:0"), (1, b"p0:1"), (2, b"p9:9")], "nobody sent"),
    ],
)
def test_lost_doubled_swapped_and_foreign_records_are_seen(log, words):
    found = violations(History(sends=[sent(b"p0:0"), sent(b"p0:1")]), log)
    assert any(words in each for each in found)


def test_half_a_transaction_is_seen():
    sends = [sent(b"p0:0"), sent(b"p0:1")]
    transaction = Transaction("p0", 1, sends, Outcome.OK)
    history = History(sends=sends, transactions=[transaction])
    found = violations(history, [(0, b"p0:0"), (1, b"p0:1")], committed=[(0, b"p0:0")])
    assert found == ["transaction 1 of p0 was committed, and a part of it cannot be read"]
    transaction.outcome = Outcome.FAILED
    found = violations(history, [(0, b"p0:0"), (1, b"p0:1")], committed=[(0, b"p0:0")])
    assert found == ["transaction 1 of p0 was aborted, and a part of it can be read"]


def test_a_reader_that_was_shown_too_much_or_too_little_is_seen():
    history = History(sends=[sent(b"p0:0"), sent(b"p0:1")])
    history.polls = [Poll("r", TP, False, [(1, b"p0:1")], 1)]
    found = violations(history, [(0, b"p0:0"), (1, b"p0:1")])
    assert any("the limit was 1" in each for each in found)
    assert any("read past 0" in each for each in found)


def test_a_group_that_went_back_is_seen_unless_a_late_commit_explains_it():
    history = History(commits=[Commit("g", TP, 9, Outcome.OK, 1, 2)])
    history.seen_offsets = [Commit("g", TP, 4, Outcome.OK, 3, 4)]
    assert violations(history, []) == [f"group g was at 9 of {TP} and later at 4"]
    history.commits.insert(0, Commit("g", TP, 4, Outcome.UNKNOWN, 0))
    assert violations(history, []) == []


def test_a_record_of_a_queue_is_acknowledged_once_and_by_somebody():
    history = History(sends=[sent(b"p0:0"), sent(b"p0:1")])
    first = Delivery(TP, 0, 1, began=1, leader_epoch=1, accepted=Outcome.OK, ended=2)
    again = Delivery(TP, 0, 2, began=3, leader_epoch=1, accepted=Outcome.OK, ended=4)
    history.deliveries = [first, again]
    found = violations(history, [(0, b"p0:0"), (1, b"p0:1")])
    assert found == [
        f"0 of {TP} was given out after it was acknowledged",
        f"nobody was given 1 of {TP} to acknowledge (1 in all)",
    ]


def test_who_acknowledges_late_what_another_one_was_given_meanwhile_is_no_violation():
    """Seed 148."""
    late = Delivery(TP, 0, 1, began=1, leader_epoch=1, accepted=Outcome.OK, ended=9)
    other = Delivery(TP, 0, 2, began=3, leader_epoch=1, accepted=Outcome.OK, ended=4)
    assert violations(History(sends=[sent(b"p0:0")], deliveries=[late, other]), [(0, b"p0:0")]) == []


def test_a_leader_of_before_may_give_out_what_its_successor_was_told_of():
    """Seed 1135."""
    done = Delivery(TP, 0, 2, began=3, leader_epoch=2, accepted=Outcome.OK, ended=4)
    stale = Delivery(TP, 0, 2, began=5, leader_epoch=1, accepted=Outcome.UNKNOWN)
    assert violations(History(sends=[sent(b"p0:0")], deliveries=[done, stale]), [(0, b"p0:0")]) == []


COPY = TopicPartition("copies", 0)


@pytest.mark.parametrize(
    ("copies", "reached", "words"),
    [
        ([b"t0:0@x0:0", b"t0:1@x0:1"], 2, []),
        ([b"t0:0@x0:0"], 1, []),
        ([b"t0:0@x0:0"], 2, ["b't0:1' at 1 of plain-0 was copied 0 times"]),
        ([b"t0:0@x0:0", b"t0:0@x1:0"], 1, ["b't0:0' at 0 of plain-0 was copied 2 times"]),
        ([b"t0:0@x0:0", b"t0:1@x0:1"], 1, ["b't0:1' at 1 of plain-0 was copied 1 times"]),
        ([b"t0:1@x0:0", b"t0:0@x0:1"], 2, ["after the copy of a later one"]),
        ([b"t0:9@x0:0"], 0, ["a copy of what is not committed"]),
    ],
)
def test_a_record_is_copied_once_if_the_group_is_past_it_and_else_not_at_all(copies, reached, words):
    history = History(copied_to={TP: reached})
    history.sends = [sent(b"t0:0"), sent(b"t0:1")]
    history.sends += [Send("x0", COPY, (copy,), outcome=Outcome.OK) for copy in copies]
    logs = {TP: [(0, b"t0:0"), (1, b"t0:1")], COPY: list(enumerate(copies))}
    found = check(history, logs, logs)
    assert len(found) == len(words)
    assert all(expected in each for expected, each in zip(words, found, strict=True))


def test_only_the_very_offset_of_a_late_commit_explains_what_a_group_is_told():
    history = History(commits=[Commit("g", TP, 9, Outcome.OK, 1, 2), Commit("g", TP, 3, Outcome.UNKNOWN, 0)])
    history.seen_offsets = [Commit("g", TP, 4, Outcome.OK, 3, 4)]
    assert violations(history, []) == [f"group g was at 9 of {TP} and later at 4"]
