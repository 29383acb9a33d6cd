"""The admin client's methods for groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypedDict

from ottla.admin import groups as requests
from ottla.admin.groups import Committed
from ottla.client.admin_partitions import OffsetTimestamp, PartitionAdmin
from ottla.client.errors import BrokerResponseError, for_code
from ottla.client.plain_data import Document, to_dict
from ottla.client.structs import OffsetAndMetadata, TopicPartition
from ottla.wire.codec import decode_prefix
from ottla.wire.enums import OffsetSpec
from ottla.wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription

ErrorType = type[BrokerResponseError]


class MemberToRemove(NamedTuple):
    """A member to remove from its group, by its member id or by its instance id.

    >>> from ottla import MemberToRemove
    >>> MemberToRemove(group_instance_id="worker-1", reason="maintenance").group_instance_id
    'worker-1'
    """

    member_id: str | None = None
    group_instance_id: str | None = None
    reason: str | None = None


class ResetOffset(TypedDict):
    """The result of a reset: NoError or the error, and the new offset."""

    error: ErrorType
    offset: int


class GroupAdmin(PartitionAdmin):
    """Describe groups, their members and offsets; delete and reset them."""

    def list_groups(
        self,
        broker_ids: Iterable[int] | None = None,
        states_filter: Iterable[str] | None = None,
        types_filter: Iterable[str] | None = None,
    ) -> list[Document]:
        """All groups of the brokers.

        >>> [group["group_id"] for group in admin.list_groups()]
        ['readers']
        """
        groups: list[Document] = []
        for broker in self._broker_ids() if broker_ids is None else broker_ids:
            response = self._run(
                requests.list_groups_on, broker, states=states_filter or (), types=types_filter or ()
            )
            groups += self._to_dict(response, broker)["groups"]
        return groups

    def describe_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, Document]:
        """State, protocol and members of groups, by their ids; `error` is None if the group could be described.

        >>> admin.describe_groups(["readers"])["readers"]["group_state"]
        'Empty'
        """
        described: dict[str, Document] = {}
        for group_id in group_ids:
            broker = self._coordinator(group_id, group_coordinator_id)
            response = self._run(
                requests.describe_classic_groups,
                broker,
                [group_id],
                operations=include_authorized_operations,
            )
            for group in self._to_dict(response, broker)["groups"]:
                code, text = group.pop("error_code"), group.pop("error_message", None)
                group["error"] = str(for_code(code)(text or "")) if code else None
                if group["protocol_type"] == "consumer":
                    for member in group["members"]:
                        _open_member(member)
                described[group["group_id"]] = group
        return described

    def delete_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None
    ) -> dict[str, str]:
        """Delete groups that have no members; for each 'OK' or the error's name.

        >>> admin.delete_groups(["no-such-group"])
        {'no-such-group': 'GroupIdNotFoundError'}
        """
        results = self._run(requests.delete_groups, list(group_ids), group_coordinator_id)
        return {name: for_code(code).__name__ if code else "OK" for name, code in results.items()}

    def list_group_offsets(
        self, group_specs: str | Iterable[str] | Mapping[str, Iterable[TopicPartition] | None]
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """The committed offsets of groups, for the partitions named or for all.

        >>> from ottla import TopicPartition
        >>> admin.list_group_offsets("readers")["readers"][TopicPartition("orders", 0)].offset
        1
        """
        if isinstance(group_specs, str):
            group_specs = [group_specs]
        wanted = group_specs if isinstance(group_specs, Mapping) else dict.fromkeys(group_specs)
        return {group_id: self._offsets_of(group_id, parts) for group_id, parts in wanted.items()}

    def list_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of one group.

        >>> len(admin.list_consumer_group_offsets("readers"))
        1
        """
        return self._offsets_of(group_id, partitions)

    def _offsets_of(
        self, group_id: str, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        found = self._run(requests.committed_or_none, group_id, partitions)
        return {
            TopicPartition(*partition): OffsetAndMetadata(
                one.offset, one.metadata, -1 if one.leader_epoch is None else one.leader_epoch
            )
            for partition, one in found.items()
        }

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, ErrorType]:
        """Commit offsets for a group that has no members; NoError or the error for each partition.

        >>> from ottla import OffsetAndMetadata, TopicPartition
        >>> results = admin.alter_group_offsets("readers", {TopicPartition("orders", 0): OffsetAndMetadata(1)})
        >>> [error.__name__ for error in results.values()]
        ['NoError']
        """
        new = {tp: Committed(one.offset, one.leader_epoch, one.metadata or "") for tp, one in offsets.items()}
        results = self._run(requests.alter_offsets, group_id, new, group_coordinator_id)
        return {TopicPartition(*partition): for_code(code) for partition, code in results.items()}

    def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, ErrorType]:
        """Delete committed offsets of topics that no member of the group reads.

        >>> from ottla import TopicPartition
        >>> results = admin.delete_group_offsets("readers", [TopicPartition("visits", 0)])
        >>> [error.__name__ for error in results.values()]
        ['NoError']
        """
        response = self._run(requests.delete_offsets, group_id, partitions, group_coordinator_id)
        if response.error_code:
            raise for_code(response.error_code)(group_id)
        return {
            TopicPartition(topic.name, one.partition_index): for_code(one.error_code)
            for topic in response.topics
            for one in topic.partitions
        }

    def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove], group_coordinator_id: int | None = None
    ) -> dict[str | None, ErrorType]:
        """Remove members: NoError or the error for each, by its member id or by its instance id.

        >>> admin.remove_group_members("readers", [])
        {}
        """
        wanted = [(one.member_id or "", one.group_instance_id, one.reason) for one in members]
        if not wanted:
            return {}
        response = self._run(requests.remove_members, group_id, wanted, group_coordinator_id)
        return {one.member_id or one.group_instance_id: for_code(one.error_code) for one in response.members}

    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, ResetOffset]:
        """Set a group without members to an OffsetSpec, a timestamp or an offset, as far as the partition
        has it: the error and the offset of each.

        >>> from ottla import OffsetSpec, TopicPartition
        >>> first = TopicPartition("orders", 0)
        >>> admin.reset_group_offsets("readers", {first: OffsetSpec.LATEST})[first]["offset"]
        1
        """
        if not offset_specs:
            return {}
        named = {
            tp: spec for tp, spec in offset_specs.items() if isinstance(spec, OffsetSpec | OffsetTimestamp)
        }
        wanted = {tp: int(spec) for tp, spec in offset_specs.items() if tp not in named}
        if named:
            wanted |= {tp: found.offset for tp, found in self.list_partition_offsets(named).items()}
        first = self.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
        last = self.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
        known = self._offsets_of(group_id, list(wanted))
        targets = {
            tp: known.get(tp, OffsetAndMetadata(0))._replace(
                offset=last[tp].offset if offset < 0 else min(max(offset, first[tp].offset), last[tp].offset)
            )
            for tp, offset in wanted.items()
        }
        errors = self.alter_group_offsets(group_id, targets, group_coordinator_id)
        return {tp: {"error": errors[tp], "offset": targets[tp].offset} for tp in targets}

    def _coordinator(self, group_id: str, known: int | None = None) -> int:
        if known is not None:
            return known
        return self._run(lambda cluster: cluster.coordinator(group_id))


def _open_member(member: Document) -> None:
    """Decode what members of a consumer group send each other, if it can be read."""
    for name, cls in (
        ("member_metadata", ConsumerProtocolSubscription),
        ("member_assignment", ConsumerProtocolAssignment),
    ):
        data = member[name]
        if len(data) >= 2:
            version = min(int.from_bytes(data[:2], "big"), cls.MAX_VERSION)
            opened, _ = decode_prefix(cls, version, data, 2)
            member[name] = to_dict(opened, version)
