"""The admin client's part about groups and their offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.client.admin_connections import to_dict
from ottla.client.admin_partitions import OffsetTimestamp, PartitionAdmin
from ottla.client.errors import BrokerResponseError, for_code
from ottla.client.structs import OffsetAndMetadata, TopicPartition
from ottla.wire import messages as m
from ottla.wire.codec import decode_prefix
from ottla.wire.enums import OffsetSpec

_GROUP = 0
_ONE_GROUP_FETCH = 7


class MemberToRemove(NamedTuple):
    """A member that shall leave its group, by its id or by the id of its instance."""

    member_id: str | None = None
    group_instance_id: str | None = None
    reason: str | None = None


class GroupAdmin(PartitionAdmin):
    """Look at groups, their members and commits; delete them or move them."""

    def list_groups(
        self,
        broker_ids: Iterable[int] | None = None,
        states_filter: Iterable[str] | None = None,
        types_filter: Iterable[str] | None = None,
    ) -> list[dict[str, Any]]:
        """All groups of the brokers."""
        groups: list[dict[str, Any]] = []
        request = m.ListGroupsRequest(
            states_filter=list(states_filter or ()), types_filter=list(types_filter or ())
        )
        for broker in self._connections.broker_ids() if broker_ids is None else broker_ids:
            answer, version = self._connections.ask(request, broker)
            _check(answer.error_code, f"broker {broker}")
            groups += to_dict(answer, version)["groups"]
        return groups

    def describe_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, dict[str, Any]]:
        """State, protocol and members of groups, by their ids; `error` is None where all is well."""
        described = {}
        for group_id in group_ids:
            request = m.DescribeGroupsRequest(
                groups=[group_id], include_authorized_operations=include_authorized_operations
            )
            node = self._coordinator(group_id, group_coordinator_id)
            answer, version = self._connections.ask(request, node)
            for group in answer.groups:
                told = to_dict(group, version)
                code, text = told.pop("error_code"), told.pop("error_message", None)
                told["error"] = str(for_code(code)(text or "")) if code else None
                if told["protocol_type"] == "consumer":
                    for member in told["members"]:
                        _open_member(member)
                described[group.group_id] = told
        return described

    def delete_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None
    ) -> dict[str, str]:
        """Delete groups that have no members; for each one 'OK' or the error's name."""
        results = {}
        for group_id in group_ids:
            answer, _ = self._connections.ask(
                m.DeleteGroupsRequest(groups_names=[group_id]),
                self._coordinator(group_id, group_coordinator_id),
            )
            for one in answer.results:
                results[one.group_id] = for_code(one.error_code).__name__ if one.error_code else "OK"
        return results

    def list_group_offsets(
        self, group_specs: str | Iterable[str] | Mapping[str, Iterable[TopicPartition] | None]
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """What groups have committed, for the partitions named or for all."""
        if isinstance(group_specs, str):
            group_specs = [group_specs]
        wanted = group_specs if isinstance(group_specs, Mapping) else dict.fromkeys(group_specs)
        return {group_id: self._offsets_of(group_id, parts) for group_id, parts in wanted.items()}

    def list_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What one group has committed."""
        return self._offsets_of(group_id, partitions)

    def _offsets_of(
        self, group_id: str, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        topics = None
        if partitions is not None:
            topics = [
                m.OffsetFetchRequest.OffsetFetchRequestTopic(
                    name=name, partition_indexes=[tp.partition for tp in parts]
                )
                for name, parts in _by_topic(partitions).items()
            ]
        request = m.OffsetFetchRequest(group_id=group_id, topics=topics)
        answer, _ = self._connections.ask(request, self._coordinator(group_id), _ONE_GROUP_FETCH)
        _check(answer.error_code, group_id)
        found = {}
        for one in answer.topics:
            for part in one.partitions:
                _check(part.error_code, f"{one.name}-{part.partition_index}")
                found[TopicPartition(one.name, part.partition_index)] = OffsetAndMetadata(
                    part.committed_offset, part.metadata or "", part.committed_leader_epoch
                )
        return found

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, type[BrokerResponseError]]:
        """Commit for a group that has no members; NoError or the error for each partition."""
        request = m.OffsetCommitRequest(
            group_id=group_id,
            topics=[
                m.OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        m.OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=tp.partition,
                            committed_offset=offsets[tp].offset,
                            committed_leader_epoch=offsets[tp].leader_epoch,
                            committed_metadata=offsets[tp].metadata or "",
                        )
                        for tp in parts
                    ],
                )
                for name, parts in _by_topic(offsets).items()
            ],
        )
        answer, _ = self._connections.ask(request, self._coordinator(group_id, group_coordinator_id), 9)
        return _errors_by_partition(answer)

    def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, type[BrokerResponseError]]:
        """Forget commits, of topics that no member of the group reads."""
        request = m.OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                m.OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[
                        m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=tp.partition)
                        for tp in parts
                    ],
                )
                for name, parts in _by_topic(partitions).items()
            ],
        )
        answer, _ = self._connections.ask(request, self._coordinator(group_id, group_coordinator_id))
        _check(answer.error_code, group_id)
        return _errors_by_partition(answer)

    def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove], group_coordinator_id: int | None = None
    ) -> dict[str | None, type[BrokerResponseError]]:
        """Have members leave: NoError or the error for each, by its id or by the id of its instance."""
        kind = m.LeaveGroupRequest
        identities = [
            kind.MemberIdentity(
                member_id=one.member_id or "", group_instance_id=one.group_instance_id, reason=one.reason
            )
            for one in members
        ]
        if not identities:
            return {}
        node = self._coordinator(group_id, group_coordinator_id)
        answer, _ = self._connections.ask(kind(group_id=group_id, members=identities), node)
        _check(answer.error_code, group_id)
        return {one.member_id or one.group_instance_id: for_code(one.error_code) for one in answer.members}

    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Let a group without members go on at an OffsetSpec, a timestamp or an offset, as far as the partition
        has it: the error and the offset of each."""
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
        return self._connections.coordinator(group_id, _GROUP) if known is None else known


def _check(code: int, what: str) -> None:
    if code:
        raise for_code(code)(what)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    grouped = defaultdict(list)
    for tp in partitions:
        grouped[tp.topic].append(tp)
    return grouped


def _errors_by_partition(answer: Any) -> dict[TopicPartition, type[BrokerResponseError]]:
    return {
        TopicPartition(topic.name, part.partition_index): for_code(part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    }


def _open_member(member: dict[str, Any]) -> None:
    """What members of a consumer group tell each other, where it can be read."""
    for name, cls in (
        ("member_metadata", m.ConsumerProtocolSubscription),
        ("member_assignment", m.ConsumerProtocolAssignment),
    ):
        data = member[name]
        if len(data) >= 2:
            version = min(int.from_bytes(data[:2], "big"), cls.MAX_VERSION)
            opened, _ = decode_prefix(cls, version, data, 2)
            member[name] = to_dict(opened, version)
