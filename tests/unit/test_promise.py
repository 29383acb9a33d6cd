"""A promise delivers one result to one receiver, whichever of the two comes first."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ApiException, ErrorCode
from ottla.promise import Gather, Promise

ERROR = ApiException(ErrorCode.NOT_COORDINATOR, "gone")


def test_a_receiver_that_waits_is_called_when_the_value_arrives() -> None:
    promise: Promise[str] = Promise()
    got: list[Any] = []
    promise.then(got.append, got.append)
    assert not promise.settled and not got
    promise.resolve("now")
    promise.resolve("too late")
    promise.reject(ERROR)
    assert got == ["now"]


def test_a_result_that_waits_is_delivered_when_the_receiver_comes() -> None:
    promise: Promise[str] = Promise()
    promise.reject(ERROR)
    promise.resolve("too late")
    assert promise.settled
    values: list[str] = []
    errors: list[ApiException] = []
    promise.then(values.append, errors.append)
    assert (values, errors) == ([], [ERROR])


def test_a_receiver_is_replaced_only_while_the_result_is_missing() -> None:
    promise: Promise[str] = Promise()
    first: list[Any] = []
    second: list[Any] = []
    promise.then(first.append, first.append)
    promise.then(second.append, second.append)
    promise.resolve("now")
    assert (first, second) == ([], ["now"])
    with pytest.raises(AssertionError):
        promise.then(first.append, first.append)


def test_gathered_values_come_in_their_order() -> None:
    got: list[Any] = []
    gather: Gather[str] = Gather(2, got.append)
    gather.put(1, "b")
    assert not got
    gather.put(0, "a")
    assert got == [["a", "b"]]
    empty: list[Any] = []
    Gather(0, empty.append)
    assert empty == [[]]
