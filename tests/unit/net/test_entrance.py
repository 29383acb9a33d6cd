"""Clients that are not in yet: their failures by address, their number, their share of the event loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.limits import MAX_FAILING_ADDRESSES
from ottla.net.connection import Connection
from ottla.net.failed_logins import FailedLogins
from ottla.net.handshake_turns import STEPS_PER_TURN, HandshakeTurns
from ottla.net.newcomers import Newcomers, max_unauthenticated


def test_the_delay_doubles_after_ten_failures_within_a_minute_up_to_five_seconds() -> None:
    failures = FailedLogins()
    delays = [failures.delay("a", 0.1, now=0.1 * number) for number in range(20)]
    assert delays[:10] == [0.1] * 10
    assert delays[10:16] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert failures.delay("b", 0.1, now=2.0) == 0.1
    assert failures.delay("a", 0.1, now=62.0) == 2.5
    assert failures.delay("a", 0.1, now=200.0) == 0.1


def test_a_longer_delay_of_the_operator_is_kept() -> None:
    failures = FailedLogins()
    assert [failures.delay("a", 8.0, now=0.0) for _ in range(12)] == [8.0] * 12


def test_one_sentence_a_minute_says_how_many_were_left_out() -> None:
    failures = FailedLogins()
    assert [failures.worth_logging("a", now) for now in (0.0, 1.0, 59.0, 60.0, 61.0)] == [
        0,
        None,
        None,
        2,
        None,
    ]
    assert failures.worth_logging("b", 61.0) == 0


def test_the_address_that_failed_longest_ago_is_forgotten() -> None:
    failures = FailedLogins()
    for number in range(MAX_FAILING_ADDRESSES):
        failures.worth_logging(str(number), 0.0)
    failures.worth_logging("0", 1.0)
    failures.worth_logging("one more", 1.0)
    assert failures.worth_logging("0", 2.0) is None
    assert failures.worth_logging("1", 2.0) == 0


def test_newcomers_are_bounded() -> None:
    newcomers = Newcomers(2)
    first, second = cast(Connection, object()), cast(Connection, object())
    newcomers.enter(first)
    assert not newcomers.full
    newcomers.enter(second)
    assert newcomers.full
    assert newcomers.leave(first)
    assert not newcomers.leave(first) and not newcomers.leave(second)


def config(**settings: Any) -> BrokerConfig:
    keys = {key.replace("_", "."): str(value) for key, value in settings.items()}
    return BrokerConfig.single_node({"log.dirs": "data"} | keys)


def test_a_quarter_of_the_connections_may_be_unauthenticated() -> None:
    assert max_unauthenticated(config()) == 2500
    assert max_unauthenticated(config(max_connections=100)) == 25
    assert max_unauthenticated(config(ottla_max_unauthenticated_connections=7)) == 7
    with pytest.raises(ConfigError, match="at least 1"):
        max_unauthenticated(config(ottla_max_unauthenticated_connections=0))


def test_a_turn_has_room_for_eight_steps() -> None:
    calls: list[Callable[[], None]] = []
    turns = HandshakeTurns(calls.append)
    made: list[int] = []

    def step(number: int) -> None:
        if turns.may_go_on(lambda: step(number)):
            made.append(number)

    for number in range(20):
        step(number)
    assert made == list(range(STEPS_PER_TURN))
    seen = [len(made)]
    while calls:
        calls.pop(0)()
        seen.append(len(made))
    assert made == list(range(20))
    assert max(after - before for before, after in itertools.pairwise(seen)) <= STEPS_PER_TURN
