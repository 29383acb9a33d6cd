"""Share sessions: epochs, limits, and which partitions a response must include."""

from __future__ import annotations

import pytest

from ottla.errors import ApiException, ErrorCode
from ottla.replica.share.sessions import ShareSession, ShareSessions

A, B = (b"a" * 16, 0), (b"b" * 16, 1)


def code_of(refused: pytest.ExceptionInfo[ApiException]) -> ErrorCode:
    return refused.value.code


def test_a_session_counts_its_requests() -> None:
    sessions = ShareSessions(10)
    session = sessions.open("g", "m", [A], "c")
    for epoch in (1, 2, 3):
        assert sessions.use("g", "m", epoch) is session
    with pytest.raises(ApiException) as refused:
        sessions.use("g", "m", 3)
    assert code_of(refused) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    with pytest.raises(ApiException) as refused:
        sessions.use("g", "n", 1)
    assert code_of(refused) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_epochs_begin_again_after_the_last_one() -> None:
    session = ShareSession(("g", "m"), [A], "c")
    session.epoch = 0x7FFF_FFFF
    session.advance()
    assert session.epoch == 1


def test_there_are_only_so_many_sessions_and_a_member_has_one() -> None:
    sessions = ShareSessions(2)
    sessions.open("g", "m", [A], "c")
    sessions.open("g", "m", [A], "d")
    sessions.open("h", "m", [A], "d")
    with pytest.raises(ApiException) as refused:
        sessions.open("h", "n", [A], "c")
    assert code_of(refused) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert sessions.of_connection("c") == []
    assert sorted(sessions.of_connection("d")) == [("g", "m"), ("h", "m")]
    sessions.remove("h", "m")
    assert sessions.has_members("g") and not sessions.has_members("h")


def test_a_session_has_only_so_many_partitions() -> None:
    with pytest.raises(ApiException) as refused:
        ShareSessions(2).open("g", "m", [(bytes(16), index) for index in range(100_001)], "c")
    assert code_of(refused) is ErrorCode.INVALID_REQUEST


def test_an_answer_tells_what_is_new() -> None:
    session = ShareSession(("g", "m"), [A, B], "c")
    assert not session.must_send(A, has_records=False, has_error=False)
    assert session.must_send(A, has_records=True, has_error=False)
    assert list(session.partitions) == [B, A], "who had records waits for the others"
    assert session.must_send(B, has_records=False, has_error=True)
    assert session.must_send(B, has_records=False, has_error=False), "the error is over: that is news"
    assert not session.must_send(B, has_records=False, has_error=False)
