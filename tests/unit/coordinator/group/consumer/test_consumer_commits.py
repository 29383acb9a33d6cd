"""Who may commit and read offsets in a consumer group."""

from __future__ import annotations

import pytest

from ottla.errors import ApiException, ErrorCode
from unit.coordinator.group.consumer.consumer_rig import Member, Rig, settle, topic_id

FOO = topic_id("foo")


def refused(code: ErrorCode) -> pytest.RaisesExc[ApiException]:
    return pytest.RaisesExc(ApiException, check=lambda error: error.code is code)


def test_a_member_commits_in_its_epoch() -> None:
    rig = Rig({"foo": 2})
    member = Member(rig, "a", ["foo"])
    member.join()
    validate = rig.group.validate_offset_commit
    assert validate("a", None, member.epoch, 9, False) is None
    with refused(ErrorCode.STALE_MEMBER_EPOCH):
        validate("a", None, member.epoch + 1, 9, False)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        validate("b", None, member.epoch, 9, False)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        validate("", None, -1, 9, False)
    with refused(ErrorCode.UNSUPPORTED_VERSION):
        validate("a", None, member.epoch, 8, False)


def test_an_older_epoch_will_do_for_partitions_held_since() -> None:
    rig = Rig({"foo": 4})
    first, second = Member(rig, "a", ["foo"]), Member(rig, "b", ["foo"])
    first.join()
    since = first.epoch
    rig.clock.advance_ms(1000)
    second.join()
    settle(rig, [first, second])
    assert first.epoch > since

    check = rig.group.validate_offset_commit("a", None, since, 10, False)
    assert check is not None
    kept = next(iter(first.owned[FOO]))
    lost = next(iter(second.owned[FOO]))
    check("foo", FOO, kept)
    with refused(ErrorCode.STALE_MEMBER_EPOCH):
        check("foo", FOO, lost)
    check = rig.group.validate_offset_commit("b", None, since, 10, False)
    assert check is not None
    with refused(ErrorCode.STALE_MEMBER_EPOCH):
        check("foo", FOO, lost)


def test_anyone_commits_to_an_empty_group() -> None:
    rig = Rig({"foo": 1})
    member = Member(rig, "a", ["foo"])
    member.join()
    member.leave()
    assert rig.group.validate_offset_commit("", None, -1, 2, False) is None


def test_a_transaction_without_a_member_may_commit() -> None:
    rig = Rig({"foo": 1})
    member = Member(rig, "a", ["foo"])
    member.join()
    assert rig.group.validate_offset_commit("", None, -1, 3, True) is None
    assert rig.group.validate_offset_commit("a", None, member.epoch, 3, True) is None
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        rig.group.validate_offset_commit("x", None, -1, 3, True)


def test_a_member_reads_offsets_in_its_epoch() -> None:
    rig = Rig({"foo": 1})
    member = Member(rig, "a", ["foo"])
    member.join()
    rig.group.validate_offset_fetch(None, -1)
    rig.group.validate_offset_fetch("a", member.epoch)
    with refused(ErrorCode.STALE_MEMBER_EPOCH):
        rig.group.validate_offset_fetch("a", member.epoch - 1)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        rig.group.validate_offset_fetch("b", 1)


def test_offsets_of_a_topic_that_is_read_are_not_deleted() -> None:
    rig = Rig({"foo": 1})
    Member(rig, "a", ["foo"]).join()
    assert rig.group.is_subscribed_to_topic("foo")
    assert not rig.group.is_subscribed_to_topic("bar")
