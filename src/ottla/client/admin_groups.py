"""The admin client's part about groups and their offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.client.admin_connections import Connections, to_dict
from ottla.client.errors import BrokerResponseError, for_code
from ottla.client.structs import OffsetAndMetadata, TopicPartition
from ottla.wire import messages as m
from ottla.wire.codec import decode_prefix

_GROUP = 0
_ONE_GROUP_FETCH = 7


class GroupAdmin:
    """Look at groups, their members and commits; delete them or move them."""

    _connections: Connections

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

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """State, protocol and members of groups, by their ids; `error` is None where all is well."""
        described = {}
        for group_id in group_ids:
            request = m.DescribeGroupsRequest(groups=[group_id], include_authorized_operations=True)
            answer, version = self._connections.ask(request, self._coordinator(group_id))
            for group in answer.groups:
                told = to_dict(group, version)
                code, text = told.pop("error_code"), told.pop("error_message", None)
                told["error"] = str(for_code(code)(text or "")) if code else None
                if told["protocol_type"] == "consumer":
                    for member in told["members"]:
                        _open_member(member)
                described[group.group_id] = told
        return described

    def delete_groups(self, group_ids: Iterable[str]) -> dict[str, str]:
        """Delete groups that have no members; for each one 'OK' or the error's name."""
        results = {}
        for group_id in group_ids:
            answer, _ = self._connections.ask(
                m.DeleteGroupsRequest(groups_names=[group_id]), self._coordinator(group_id)
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
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
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
        answer, _ = self._connections.ask(request, self._coordinator(group_id), 9)
        return _errors_by_partition(answer)

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
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
        answer, _ = self._connections.ask(request, self._coordinator(group_id))
        _check(answer.error_code, group_id)
        return _errors_by_partition(answer)

    def _coordinator(self, group_id: str) -> int:
        request = m.FindCoordinatorRequest(key=group_id, key_type=_GROUP)
        answer, _ = self._connections.ask(request, None, 3)
        _check(answer.error_code, answer.error_message or group_id)
        node_id: int = answer.node_id
        return node_id


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
