"""A failing run is made smaller without becoming another one."""

from ottla.testing.sim.plan import drawn
from ottla.testing.sim.shrinking import kinds, shrink
from ottla.testing.sim.world import Result


def result(plan, *violations):
    return Result(plan, 0, 0, 0.0, list(violations), rounds=plan.rounds or 9)


def test_failures_of_one_kind_are_alike_whatever_they_hit():
    lost = "b'p0.1:17' was acknowledged and is not in plain-1"
    assert kinds([lost]) == kinds(["b'q0.2:3' was acknowledged and is not in queue-0"])
    assert kinds(["n1 gave up: KafkaError"]) == kinds(["n3 gave up: KafkaError"]) != kinds([lost])


def test_only_the_rounds_and_clients_that_it_takes_are_left():
    runs = []

    def again(plan):
        runs.append(plan)
        happens = not {2, 5} & plan.left_out and "p1" in plan.clients
        return result(plan, "p1.1 was shown 4 of plain-0 after 7" if happens else "n1 gave up")

    first = result(drawn(1), "p1.1 was shown 3 of plain-1 after 8")
    reported = []
    found = shrink(first, reported.append, again)
    assert set(range(9)) - found.plan.left_out == {2, 5}
    assert found.plan.clients == ("p1",)
    assert found.violations == ["p1.1 was shown 4 of plain-0 after 7"]
    assert len(runs) <= 80 and reported[-1] == "still fails: 2 rounds of faults, with p1"


def test_what_cannot_be_made_smaller_stays_as_it_is():
    first = result(drawn(1), "no progress within 40 s of peace")
    assert shrink(first, lambda line: None, lambda plan: result(plan)) is first
