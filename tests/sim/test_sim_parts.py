"""The simulator's own parts: time that jumps, links that are cut, and a checker that sees what it should."""

import asyncio
import random

import pytest

from ottla.log.types import TopicPartition
from ottla.testing.checks.checker import check
from ottla.testing.checks.history import Outcome
from ottla.testing.sim.history import Commit, Delivery, History, Poll, Send, Transaction
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


# -- the history for the checks that chaos runs share


def sent(value, **options):
    return Send("p0", TP, (value,), outcome=Outcome.OK, **options)


def anomalies(history, log, committed=None):
    logs = {TP: log}
    return [each.kind for each in check(history.shared(logs, logs if committed is None else {TP: committed}))]


def test_a_good_history_is_good():
    history = History(sends=[sent(b"p0:0", base_offset=0), sent(b"p0:1", base_offset=1)])
    history.polls = [Poll("r", TP, False, [(0, b"p0:0")], 1)]
    history.commits = [Commit("g", TP, 1, Outcome.OK, 1, 2), Commit("g", TP, 2, Outcome.OK, 3, 4)]
    assert anomalies(history, [(0, b"p0:0"), (1, b"p0:1")]) == []


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ([(0, b"p0:0")], "lost write"),
        ([(0, b"p0:0"), (1, b"p0:1"), (2, b"p0:1")], "duplicate"),
        ([(0, b"p0:1"), (1, b"p0:0")], "non-monotonic send"),
        ([(0, b"p0:0"), (1, b"p0:1"), (2, b"p9:9")], "foreign record"),
    ],
)
def test_lost_doubled_swapped_and_foreign_records_are_seen(log, kind):
    assert anomalies(History(sends=[sent(b"p0:0"), sent(b"p0:1")]), log) == [kind]


def test_half_a_transaction_is_seen():
    transaction = Transaction("p0", 1, outcome=Outcome.OK, began=1, ending=2, ended=3)
    sends = transaction.sends = [
        sent(b"p0:0", transaction=transaction),
        sent(b"p0:1", transaction=transaction),
    ]
    history = History(sends=sends, transactions=[transaction])
    log = [(0, b"p0:0"), (1, b"p0:1")]
    assert anomalies(history, log) == []
    assert anomalies(history, log, committed=log[:1]) == ["lost write", "torn transaction"]
    transaction.outcome = Outcome.FAILED
    assert anomalies(history, log, committed=[]) == []
    assert anomalies(history, log, committed=log) == ["aborted read"] * 2


def test_a_reader_that_was_shown_too_much_or_too_little_is_seen():
    history = History(sends=[sent(b"p0:0"), sent(b"p0:1")])
    history.polls = [Poll("r", TP, False, [(1, b"p0:1")], 1)]
    log = [(0, b"p0:0"), (1, b"p0:1")]
    assert anomalies(history, log) == ["read beyond the limit", "poll skip"]


def test_a_group_that_went_back_is_seen_unless_a_late_commit_explains_it():
    history = History(commits=[Commit("g", TP, 9, Outcome.OK, 1, 2)])
    history.seen_offsets = [Commit("g", TP, 4, Outcome.OK, 3, 4)]
    assert anomalies(history, []) == ["group went back"]
    history.commits.insert(0, Commit("g", TP, 4, Outcome.UNKNOWN, 0))
    assert anomalies(history, []) == []


def test_a_record_of_a_queue_is_acknowledged_once_and_by_somebody():
    history = History(sends=[sent(b"p0:0"), sent(b"p0:1")])
    first = Delivery(TP, 0, 1, began=1, leader_epoch=1, accepted=Outcome.OK, ended=2)
    again = Delivery(TP, 0, 2, began=3, leader_epoch=1, accepted=Outcome.OK, ended=4)
    history.deliveries = [first, again]
    found = anomalies(history, [(0, b"p0:0"), (1, b"p0:1")])
    assert found == ["acknowledged twice", "lost from a queue"]


COPY = TopicPartition("copies", 0)


@pytest.mark.parametrize(
    ("copies", "reached", "kinds"),
    [
        ([b"t0:0@x0:0", b"t0:1@x0:1"], 2, []),
        ([b"t0:0@x0:0"], 1, []),
        ([b"t0:0@x0:0"], 2, ["not copied"]),
        ([b"t0:0@x0:0", b"t0:0@x1:0"], 1, ["copied twice"]),
        ([b"t0:0@x0:0", b"t0:1@x0:1"], 1, ["copied ahead"]),
        ([b"t0:1@x0:0", b"t0:0@x0:1"], 2, ["copies out of order"]),
        ([b"t0:9@x0:0"], 0, ["copy of nothing"]),
    ],
)
def test_a_record_is_copied_once_if_the_group_is_past_it_and_else_not_at_all(copies, reached, kinds):
    transaction = Transaction("x", 1, outcome=Outcome.OK, group="g")
    history = History(copied_to={TP: reached}, transactions=[transaction])
    history.sends = [Send("t0", TP, (value,), outcome=Outcome.OK) for value in (b"t0:0", b"t0:1")]
    history.sends += [
        Send(copy.partition(b"@")[2].decode()[:2], COPY, (copy,), transaction, Outcome.OK) for copy in copies
    ]
    logs = {TP: [(0, b"t0:0"), (1, b"t0:1")], COPY: list(enumerate(copies))}
    assert [each.kind for each in check(history.shared(logs, logs))] == kinds
