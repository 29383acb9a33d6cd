"""A member's next step towards its target assignment, as a pure function.

It guarantees that a member gets a partition only when no other member has it: when its former owner no longer
reports it, or has left. Until then the new owner waits in UNRELEASED_PARTITIONS.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from ottla.coordinator.group.consumer.member import (
    ConsumerGroupMember,
    MemberState,
    OwnedPartitions,
    Partitions,
)
from ottla.errors import ApiException, ErrorCode

Reported = Mapping[bytes, Collection[int]]
"""The partitions that a member reports as its own."""

_NO_PARTITIONS: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Target:
    """The target assignment of a member."""

    epoch: int
    partitions: Partitions


def reconcile(
    member: ConsumerGroupMember,
    target: Target,
    *,
    subscribed: Collection[bytes],
    subscription_changed: bool,
    is_owned: Callable[[bytes, int], bool],
    reported: Reported | None,
) -> ConsumerGroupMember:
    """The member after this step; itself where nothing changes.

    `subscribed` are the ids of its topics; `is_owned` says whether a member of the group has a partition; `reported`
    are the partitions that the member reports as its own, None when it reports none at all.
    """
    if member.state is MemberState.STABLE:
        if member.epoch != target.epoch:
            return _advance(member, member.epoch, target, subscribed, is_owned, reported)
        return _drop_unsubscribed(member, subscribed, reported) if subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_has(member.pending_revocation, reported):
            return _drop_unsubscribed(member, subscribed, reported) if subscription_changed else member
        return _advance(member, member.epoch, target, subscribed, is_owned, reported)
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return _advance(member, member.epoch, target, subscribed, is_owned, reported)
    if reported is None or reported:
        # A state of a later version: only a member without partitions can continue safely.
        raise ApiException(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member is in an unknown state: it must give up all of its partitions and join again",
        )
    return _advance(member, target.epoch, target, subscribed, is_owned, reported)


def _still_has(partitions: OwnedPartitions, reported: Reported | None) -> bool:
    """Whether the member reports any of them; without a report it counts as having all of them."""
    if reported is None:
        return True
    return any(
        not partitions[topic_id].keys().isdisjoint(numbers)
        for topic_id, numbers in reported.items()
        if topic_id in partitions
    )


def _drop_unsubscribed(
    member: ConsumerGroupMember, subscribed: Collection[bytes], reported: Reported | None
) -> ConsumerGroupMember:
    """Revoke topics that the member no longer subscribes to, without moving towards a newer target."""
    dropped = [topic_id for topic_id in member.assigned if topic_id not in subscribed]
    if not dropped:
        return member
    assigned = {topic_id: owned for topic_id, owned in member.assigned.items() if topic_id not in dropped}
    pending = dict(member.pending_revocation)
    for topic_id in dropped:
        pending[topic_id] = {**pending.get(topic_id, {}), **member.assigned[topic_id]}
    if _still_has(pending, reported):
        return member.with_assignment(
            member.epoch, assigned, state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=pending
        )
    return member.with_assignment(member.epoch, assigned)


def _advance(
    member: ConsumerGroupMember,
    epoch: int,
    target: Target,
    subscribed: Collection[bytes],
    is_owned: Callable[[bytes, int], bool],
    reported: Reported | None,
) -> ConsumerGroupMember:
    """Keep what is in the target, first revoke the rest, then assign the free partitions of the target."""
    assigned: dict[bytes, dict[int, int]] = {}
    to_revoke: dict[bytes, dict[int, int]] = {}
    to_assign: dict[bytes, list[int]] = {}
    unreleased = False
    for topic_id in {**target.partitions, **member.assigned}:
        wanted = target.partitions.get(topic_id, _NO_PARTITIONS) if topic_id in subscribed else _NO_PARTITIONS
        owned = member.assigned.get(topic_id, {})
        kept = {number: since for number, since in owned.items() if number in wanted}
        revoked = {number: since for number, since in owned.items() if number not in wanted}
        if kept:
            assigned[topic_id] = kept
        if revoked:
            to_revoke[topic_id] = revoked
        own_pending = member.pending_revocation.get(topic_id, {})
        for number in wanted:
            if number in kept:
                continue
            if number not in own_pending and is_owned(topic_id, number):
                unreleased = True
            else:
                to_assign.setdefault(topic_id, []).append(number)
    if to_revoke and _still_has(to_revoke, reported):
        return member.with_assignment(
            epoch, assigned, state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=to_revoke
        )
    for topic_id, numbers in to_assign.items():
        assigned.setdefault(topic_id, {}).update(dict.fromkeys(numbers, target.epoch))
    return replace(
        member,
        epoch=target.epoch,
        previous_epoch=member.epoch,
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        assigned=assigned,
        pending_revocation={},
    )
