"""Online migration: groups that change their protocol while they have members.

A classic group becomes a consumer group when the first member of the consumer protocol joins; its classic members stay
in it (`classic_members.py`). A consumer group becomes a classic one when its last member of the consumer protocol
leaves. `group.consumer.migration.policy` allows either or both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.classic.member import ClassicMember as MemberOfClassicGroup
from ottla.coordinator.group.classic.records import group_record, group_tombstone
from ottla.coordinator.group.classic.state import ClassicState
from ottla.coordinator.group.consumer import records as write
from ottla.coordinator.group.consumer import settings
from ottla.coordinator.group.consumer.embedded import assigned_in, assignment_bytes, subscription_of
from ottla.coordinator.group.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from ottla.coordinator.group.consumer.member import (
    ClassicMember,
    ClassicProtocol,
    ConsumerGroupMember,
    MemberState,
    epochs_of,
)
from ottla.coordinator.group.metadata_hash import metadata_hash
from ottla.coordinator.records import CoordinatorRecord
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.groups import ConsumerGroups

_logger = logging.getLogger(__name__)

_CUSTOM_ASSIGNOR: Final = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
    "before re-attempting the upgrade"
)


# -- from classic to consumer


def upgrade(
    consumers: ConsumerGroups, classic: ClassicGroup, records: list[CoordinatorRecord]
) -> ConsumerGroup:
    """The consumer group that replaces a classic one; adds the records of the change."""
    _check_upgrade(consumers, classic)
    group = _as_consumer_group(consumers, classic)
    records.append(group_tombstone(classic.group_id))
    members = group.members.values()
    records += [write.member_subscription(group.group_id, member) for member in members]
    records.append(write.group_epoch(group.group_id, group.epoch, group.metadata_hash))
    records += [
        write.target_assignment(group.group_id, member_id, group.target[member_id])
        for member_id in group.members
    ]
    records.append(write.target_epoch(group.group_id, group.assignment_epoch, group.assignment_ms))
    records += [write.current_assignment(group.group_id, member) for member in members]
    # The join that causes the upgrade also causes a new target: waiting members have to join again for it.
    for member in classic.members.values():
        again = ErrorCode.REBALANCE_IN_PROGRESS
        join = messages.JoinGroupResponse(member_id=member.member_id, error_code=again, protocol_name=None)
        classic.answer_join(member, join)
        classic.answer_sync(member, messages.SyncGroupResponse(error_code=again))
    _logger.info("Upgraded group %s from classic to consumer", group.group_id)
    return group


def _check_upgrade(consumers: ConsumerGroups, classic: ClassicGroup) -> None:
    config = consumers.context.config
    reason = None
    if not settings.migration_policy(config).allows_upgrade:
        reason = "online upgrade is disabled"
    elif not classic.uses_consumer_protocol:
        reason = "the group does not use the consumer embedded protocol"
    elif len(classic.members) > config.int("group.consumer.max.size"):
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise _cannot_upgrade(classic.group_id, reason)


def _cannot_upgrade(group_id: str, reason: str) -> ApiException:
    return ApiException(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group_id} to consumer group because {reason}.",
    )


def _as_consumer_group(consumers: ConsumerGroups, classic: ClassicGroup) -> ConsumerGroup:
    image = consumers.context.image
    group = ConsumerGroup(classic.group_id)
    group.epoch = group.assignment_epoch = generation = classic.generation
    for old in classic.members.values():
        try:
            assigned, has_user_data = assigned_in(old.assignment, image)
            # Before the end of the first rebalance no protocol is chosen: use the member's preferred one.
            metadata = old.protocols[0][1] if classic.protocol is None else old.metadata(classic.protocol)
            subscription = subscription_of(metadata)
        except (ApiException, StopIteration, IndexError) as error:
            raise _cannot_upgrade(classic.group_id, "the embedded consumer protocol is malformed") from error
        if has_user_data:
            raise _cannot_upgrade(classic.group_id, _CUSTOM_ASSIGNOR)
        group.target[old.member_id] = assigned
        group.put_member(
            ConsumerGroupMember(
                old.member_id,
                epoch=generation,
                previous_epoch=generation,
                state=MemberState.STABLE,
                instance_id=old.instance_id,
                rack_id=subscription.rack_id or None,
                rebalance_timeout_ms=old.rebalance_timeout_ms,
                client_id=old.client_id,
                client_host=old.client_host,
                topic_names=frozenset(map(TopicName, subscription.topics)),
                assigned=epochs_of(assigned, generation),
                classic=ClassicMember(
                    old.session_timeout_ms,
                    tuple(ClassicProtocol(name, metadata) for name, metadata in old.protocols),
                ),
            )
        )
    group.metadata_hash = metadata_hash(group.subscriptions.topics(), image, consumers.topic_hashes)
    return group


# -- from consumer to classic


def may_downgrade_without(
    consumers: ConsumerGroups, group: ConsumerGroup, leaving: Collection[ConsumerGroupMember]
) -> bool:
    """Whether only classic members would stay, and the group may become a classic one."""
    staying = len(group.members) - len(leaving)
    classic = group.classic_member_count - sum(member.uses_classic_protocol for member in leaving)
    return staying > 0 and classic == staying and _may_downgrade(consumers, group, staying)


def may_downgrade_replacing(
    consumers: ConsumerGroups, group: ConsumerGroup, replaced: ConsumerGroupMember | None
) -> bool:
    """Whether a classic member replaces the last member of the consumer protocol."""
    if replaced is None or replaced.uses_classic_protocol:
        return False
    count = len(group.members)
    return group.classic_member_count == count - 1 and _may_downgrade(consumers, group, count)


def _may_downgrade(consumers: ConsumerGroups, group: ConsumerGroup, size: int) -> bool:
    config = consumers.context.config
    if not settings.migration_policy(config).allows_downgrade:
        _logger.info("group %s stays a consumer group: online downgrade is disabled", group.group_id)
        return False
    if size > config.int("group.max.size"):
        _logger.info("group %s stays a consumer group: it is too large for a classic one", group.group_id)
        return False
    return True


def downgrade(
    consumers: ConsumerGroups,
    group: ConsumerGroup,
    now_ms: int,
    *,
    leaving: Mapping[str, ConsumerGroupMember] | None = None,
    joining: ConsumerGroupMember | None = None,
    written: list[CoordinatorRecord] | None = None,
    rebalance: bool = True,
) -> tuple[list[CoordinatorRecord], Callable[[ApiException | None], None]]:
    """The records that make the group a classic one, and a callback for when they are committed.

    `joining` is a static classic member that replaces one of the consumer protocol; `written` are its records so far.
    """
    classic = _as_classic_group(consumers, group, now_ms, leaving or {}, joining)
    records = [] if written is None else written
    member_ids = list(group.members)
    if joining is not None:
        replaced = group.static_members[joining.instance_id or ""]
        member_ids[member_ids.index(replaced)] = joining.member_id
    records += write.group_tombstones(group.group_id, member_ids, group.subscriptions.resolved)
    records.append(group_record(classic, classic.assignments()))
    _logger.info("Downgraded group %s from consumer to classic", group.group_id)

    def committed(error: ApiException | None) -> None:
        if error is None:
            group.cancel_timers(consumers.context.timers)
            consumers.adopt_classic(classic, now_ms, rebalance)

    return records, committed


def _as_classic_group(
    consumers: ConsumerGroups,
    group: ConsumerGroup,
    now_ms: int,
    leaving: Mapping[str, ConsumerGroupMember],
    joining: ConsumerGroupMember | None,
) -> ClassicGroup:
    classic = ClassicGroup(
        group.group_id,
        now_ms,
        state=ClassicState.STABLE,
        generation=group.epoch,
        protocol_type=PROTOCOL_TYPE,
    )
    targets = {}
    for member in group.members.values():
        if member.member_id in leaving:
            continue
        target = group.target.get(member.member_id, {})
        if joining is not None and member.instance_id == joining.instance_id:
            member = joining
        targets[member.member_id] = target
        classic.add(_as_classic_member(member))
    classic.protocol = classic.select_protocol()
    classic.compute_subscribed()
    for member_id, target in targets.items():
        old = classic.members[member_id]
        old.assignment = assignment_bytes(target, old.metadata(classic.protocol), consumers.context.image)
    return classic


def _as_classic_member(member: ConsumerGroupMember) -> MemberOfClassicGroup:
    assert member.classic is not None
    return MemberOfClassicGroup(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        PROTOCOL_TYPE,
        tuple((protocol.name, protocol.metadata) for protocol in member.classic.protocols),
    )
