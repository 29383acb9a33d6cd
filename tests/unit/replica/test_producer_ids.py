"""Producer ids: handed out at once from a block, the next block asked for ahead of time."""

from __future__ import annotations

from typing import Any

from ottla.errors import ApiException, ErrorCode
from ottla.replica.producer_ids import ProducerIds


class SlowController:
    """Responds when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.next = 0

    def __call__(self, done: Any) -> None:
        self.asked.append(done)

    def answer(self, error: ApiException | None = None) -> None:
        done = self.asked.pop(0)
        if error is None:
            self.next += 10
            done(self.next - 10, 10, None)
        else:
            done(-1, 0, error)


def take(ids: ProducerIds, count: int = 1) -> list[Any]:
    taken: list[Any] = []
    for _ in range(count):
        ids.next_id(lambda number, error: taken.append(number if error is None else error.code))
    return taken


def test_those_who_come_before_the_first_block_wait_for_it():
    controller = SlowController()
    ids = ProducerIds(controller)
    taken = take(ids, 3)
    assert taken == []
    assert len(controller.asked) == 1
    controller.answer()
    assert taken == [0, 1, 2]


def test_the_next_block_is_there_before_the_first_is_used_up():
    controller = SlowController()
    ids = ProducerIds(controller)
    take(ids)
    controller.answer()
    assert take(ids, 8) == list(range(1, 9))
    assert not controller.asked
    assert take(ids) == [9]
    assert len(controller.asked) == 1
    controller.answer()
    assert take(ids, 3) == [10, 11, 12]


def test_more_than_a_block_may_wait():
    controller = SlowController()
    ids = ProducerIds(controller)
    taken = take(ids, 25)
    while controller.asked:
        controller.answer()
    assert taken == list(range(25))


def test_a_controller_that_is_not_there_is_an_error_that_producers_retry():
    controller = SlowController()
    ids = ProducerIds(controller)
    taken = take(ids, 2)
    controller.answer(ApiException(ErrorCode.NOT_CONTROLLER, "no"))
    assert taken == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    taken = take(ids)
    controller.answer()
    assert taken == [0]
