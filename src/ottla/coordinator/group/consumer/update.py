"""A member's join or heartbeat, step by step: subscription, group epoch, target, reconciliation.

It changes no state; `records` collects the changes. ConsumerGroupHeartbeat and the classic JoinGroup to a consumer
group share these steps.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from ottla.coordinator.group.consumer import records as write
from ottla.coordinator.group.consumer import settings
from ottla.coordinator.group.consumer.assignors import ASSIGNORS
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import ConsumerGroupMember
from ottla.coordinator.group.consumer.reconcile import Reported, Target, reconcile
from ottla.coordinator.group.consumer.subscriptions import Subscriptions
from ottla.coordinator.group.consumer.target import compute_target, subscribed_topic_ids
from ottla.coordinator.group.context import GroupContext
from ottla.coordinator.group.metadata_hash import metadata_hash
from ottla.coordinator.records import CoordinatorRecord

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class MemberUpdate:
    """The update of one member from `old` to `new`, which each step may replace."""

    context: GroupContext
    group: ConsumerGroup
    old: ConsumerGroupMember
    new: ConsumerGroupMember
    now_ms: int
    records: list[CoordinatorRecord]
    topic_hashes: dict[str, int]
    """The shard's cache of topics' hashes."""
    epoch: int = field(init=False)
    """The group's epoch after this update."""
    target: Target = field(init=False)
    _after: Subscriptions | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.epoch = self.group.epoch
        self.target = Target(self.group.assignment_epoch, self.group.target_of(self.new))

    @property
    def member_changed(self) -> bool:
        return self.new is not self.old and self.new != self.old

    @property
    def names_changed(self) -> bool:
        return self.new.topic_names != self.old.topic_names

    def write_member(self) -> None:
        """Write the member's metadata if it has changed."""
        if self.member_changed:
            self.records.append(write.member_subscription(self.group.group_id, self.new))

    def subscriptions_after(self) -> Subscriptions:
        """The group's subscriptions as they will be."""
        if self._after is None:
            group = self.group
            if group.members.get(self.new.member_id) is self.new:
                self._after = group.subscriptions
            else:
                self._after = group.subscriptions.copy()
                self._after.replace(self._replaced(), self.new)
                self._after.forget_unused_regexes()
        return self._after

    def _replaced(self) -> ConsumerGroupMember | None:
        """The member that `new` replaces: its earlier state, or the static member of the same instance id."""
        return self.group.members.get(self.new.member_id) or self.group.static_member(self.new.instance_id)

    def refresh_metadata(self, *, bump: bool) -> None:
        """Start a new group epoch if the subscription or the topics have changed."""
        group = self.group
        if not bump and not group.metadata_expired(self.now_ms):
            return
        topics = self.subscriptions_after().topics()
        hashed = metadata_hash(topics, self.context.image, self.topic_hashes)
        if bump or hashed != group.metadata_hash:
            self.epoch += 1
            self.records.append(write.group_epoch(group.group_id, self.epoch, hashed))
            _logger.info("group %s is in epoch %d", group.group_id, self.epoch)
        group.refreshed(self.now_ms, self.epoch)
        if group.has_partition_metadata:
            self.records.append(write.partition_metadata_tombstone(group.group_id))

    def assign(self) -> None:
        """Compute a new target if the group has a newer epoch, unless the last target is too recent."""
        group = self.group
        if group.assignment_epoch >= self.epoch:
            return
        if group.assigned_recently(
            settings.assignment_interval_ms(self.context, group.group_id), self.now_ms
        ):
            return
        default = settings.assignor_names(self.context.config)[0]
        name = group.preferred_assignor(self._replaced(), self.new) or default
        computed = compute_target(
            group,
            self.new,
            self.subscriptions_after(),
            assignor=ASSIGNORS.get(name) or ASSIGNORS[default],
            epoch=self.epoch,
            image=self.context.image,
            now_ms=self.now_ms,
        )
        self.records += computed.records
        self.target = Target(self.epoch, computed.assignment[self.new.member_id])
        _logger.info("group %s has a new target for epoch %d by '%s'", group.group_id, self.epoch, name)

    def reconcile(self, reported: Reported | None, *, subscription_changed: bool) -> None:
        """Take the member's next step towards its target."""
        if not subscription_changed and self.new.is_reconciled_to(self.target.epoch):
            return
        names = self.subscriptions_after().topics_of(self.new)
        before = self.new
        self.new = reconcile(
            before,
            self.target,
            subscribed=subscribed_topic_ids(names, self.context.image),
            subscription_changed=subscription_changed,
            is_owned=self.group.is_owned,
            reported=reported,
        )
        if self.new != before:
            self.records.append(write.current_assignment(self.group.group_id, self.new))
