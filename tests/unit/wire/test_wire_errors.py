from __future__ import annotations

import pytest

from ottla.errors import ApiException, ErrorCode


def test_the_table_is_whole():
    assert len(ErrorCode) == 135
    assert [code.value for code in ErrorCode] == list(range(-1, 134))


@pytest.mark.parametrize(
    ("code", "retriable"),
    [
        (ErrorCode.NONE, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.CORRUPT_MESSAGE, True),
        (ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (ErrorCode.SHARE_SESSION_LIMIT_REACHED, True),
    ],
)
def test_a_code_knows_whether_trying_again_may_help(code: ErrorCode, retriable: bool):
    assert code.retriable is retriable


def test_a_code_from_a_newer_kafka_is_an_unknown_error():
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_error_says_its_code_and_the_sentence():
    error = ApiException(ErrorCode.INVALID_CONFIG, "no such key")
    assert (error.code, error.message) == (40, "no such key")
    assert str(error) == "INVALID_CONFIG: no such key"
    assert str(ApiException(ErrorCode.NOT_CONTROLLER)) == "NOT_CONTROLLER"
