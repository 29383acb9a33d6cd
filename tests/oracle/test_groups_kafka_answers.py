"""The same dialogues of group members with Apache Kafka and with Ottla: the same answers, in every version."""

from __future__ import annotations

import difflib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from oracle.kafka_tools import needs_java
from ottla.errors import ErrorCode
from ottla.testing.apache import ApacheKafka
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire import messages as m

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
UNKNOWN_ID = b"\x01" * 16


class Dialogue:
    """One side of it, with a transcript in which what is drawn at random is named by its turn."""

    def __init__(self, client: RawClient, topic_id: bytes) -> None:
        self.client = client
        self.topic_id = topic_id
        self.group = ""
        self.transcript: list[str] = []
        self._names: dict[str, str] = {}

    def ask(self, request: Any, version: int) -> Any:
        response = self.client.ask(request, version)
        self.note(type(request).NAME, version, response)
        return response

    def note(self, name: str, version: int, response: Any) -> None:
        for line in self._lines(response):
            self.transcript.append(f"{name} {version}: {line}")

    def _lines(self, value: Any, path: str = "") -> Iterator[str]:
        if hasattr(value, "__struct_fields__"):
            for field in value.__struct_fields__:
                if field not in ("throttle_time_ms", "error_message", "unknown_tagged_fields"):
                    yield from self._lines(getattr(value, field), f"{path}.{field}")
        elif isinstance(value, list):
            yield f"{path} has {len(value)}"
            for lines in sorted(list(self._lines(each, path)) for each in value):
                yield from lines
        elif value == self.topic_id:
            yield f"{path} = the topic's id"
        else:
            yield f"{path} = {self._plain(repr(value))}"

    def _plain(self, text: str) -> str:
        return _UUID.sub(lambda found: self._names.setdefault(found.group(), f"<{len(self._names)}>"), text)

    # -- requests

    def join(self, version: int, member_id: str = "", **more: Any) -> Any:
        request = m.JoinGroupRequest
        protocols = more.pop("protocols", {"range": b"\0\0"})
        fields: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": 60_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            **more,
        }
        if version >= 1:
            fields["rebalance_timeout_ms"] = 60_000
        return self.ask(
            request(
                protocols=[
                    request.JoinGroupRequestProtocol(name=n, metadata=b) for n, b in protocols.items()
                ],
                **fields,
            ),
            version,
        )

    def sync(self, version: int, member_id: str, generation: int, *parts: str, **more: Any) -> Any:
        request = m.SyncGroupRequest
        fields: dict[str, Any] = {"group_id": self.group, **more}
        if version >= 5:
            fields.setdefault("protocol_type", "consumer")
            fields.setdefault("protocol_name", "range")
        return self.ask(
            request(
                generation_id=generation,
                member_id=member_id,
                assignments=[
                    request.SyncGroupRequestAssignment(member_id=each, assignment=b"its part")
                    for each in parts
                ],
                **fields,
            ),
            version,
        )

    def heartbeat(self, version: int, member_id: str, generation: int, **more: Any) -> Any:
        fields = {"group_id": self.group, **more}
        return self.ask(m.HeartbeatRequest(member_id=member_id, generation_id=generation, **fields), version)

    def leave(self, version: int, *members: tuple[str, str | None], **more: Any) -> Any:
        fields: dict[str, Any] = {"group_id": self.group, **more}
        if version < 3:
            fields["member_id"] = members[0][0]
        else:
            identity = m.LeaveGroupRequest.MemberIdentity
            fields["members"] = [identity(member_id=a, group_instance_id=b) for a, b in members]
        return self.ask(m.LeaveGroupRequest(**fields), version)

    def commit(
        self, version: int, offset: int, member_id: str = "", generation: int = -1, **more: Any
    ) -> Any:
        request = m.OffsetCommitRequest
        topics = more.pop("topics", ["t"])
        metadata = more.pop("metadata", "m")
        partitions = more.pop("partitions", [0, 1])
        return self.ask(
            request(
                group_id=more.pop("group_id", self.group),
                member_id=member_id,
                generation_id_or_member_epoch=generation,
                topics=[
                    request.OffsetCommitRequestTopic(
                        partitions=[
                            request.OffsetCommitRequestPartition(
                                partition_index=index, committed_offset=offset, committed_metadata=metadata
                            )
                            for index in partitions
                        ],
                        **(self._by_id(name) if version >= 10 else {"name": name}),
                    )
                    for name in topics
                ],
                **more,
            ),
            version,
        )

    def _by_id(self, name: str) -> dict[str, bytes]:
        return {"topic_id": self.topic_id if name == "t" else UNKNOWN_ID}

    def fetch(self, version: int, topics: list[str] | None = None, group_id: str | None = None) -> Any:
        request = m.OffsetFetchRequest
        group = self.group if group_id is None else group_id
        if version >= 8:
            found = None
            if topics is not None:
                found = [
                    request.OffsetFetchRequestTopics(
                        partition_indexes=[0, 1, 9],
                        **(self._by_id(name) if version >= 10 else {"name": name}),
                    )
                    for name in topics
                ]
            return self.ask(
                request(groups=[request.OffsetFetchRequestGroup(group_id=group, topics=found)]), version
            )
        found = None
        if topics is not None:
            found = [
                request.OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1, 9]) for name in topics
            ]
        return self.ask(request(group_id=group, topics=found), version)

    def describe(self, version: int, *groups: str) -> Any:
        return self.ask(m.DescribeGroupsRequest(groups=list(groups) or [self.group]), version)

    def offset_delete(self, *topics: str, **more: Any) -> Any:
        request = m.OffsetDeleteRequest
        part = request.OffsetDeleteRequestPartition
        return self.ask(
            request(
                group_id=more.pop("group_id", self.group),
                topics=[
                    request.OffsetDeleteRequestTopic(
                        name=name, partitions=[part(partition_index=0), part(partition_index=9)]
                    )
                    for name in topics
                ],
            ),
            0,
        )

    def delete(self, version: int, *groups: str) -> Any:
        return self.ask(m.DeleteGroupsRequest(groups_names=list(groups)), version)

    def listed(self, version: int, **filters: Any) -> None:
        """Only the own group: others may be there."""
        response = self.client.ask(m.ListGroupsRequest(**filters), version)
        response.groups = [group for group in response.groups if group.group_id == self.group]
        self.note("ListGroups", version, response)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory, broker: BrokerProcess) -> Iterator[list[Dialogue]]:
    kafka = ApacheKafka(tmp_path_factory.mktemp("kafka"))
    kafka.format()
    kafka.start()
    try:
        with (
            RawClient("127.0.0.1", kafka.port) as one,
            RawClient(broker.host, broker.port) as other,
        ):
            yield [Dialogue(client, prepare(client)) for client in (one, other)]
    finally:
        kafka.kill()


@pytest.fixture(scope="module")
def broker_settings() -> Mapping[str, object]:
    return {"group.initial.rebalance.delay.ms": 0}


def prepare(client: RawClient) -> bytes:
    """A topic `t` of two partitions, and a coordinator that is ready; the topic's id."""
    creation = m.CreateTopicsRequest
    created = client.ask(
        creation(
            topics=[creation.CreatableTopic(name="t", num_partitions=2, replication_factor=1)],
            timeout_ms=30_000,
        ),
        7,
    )
    found = None
    while found is None or found.coordinators[0].error_code:
        found = client.ask(m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6)
    return bytes(created.topics[0].topic_id)


def wait_for_coordinator(client: RawClient, group: str) -> None:
    """Kafka says where the coordinator is before it is ready there."""
    while client.ask(m.HeartbeatRequest(group_id=group), 4).error_code != ErrorCode.UNKNOWN_MEMBER_ID:
        pass


Story = Callable[[Dialogue], None]


def the_life_of_a_group(version: int) -> Story:
    """A member joins, syncs, commits and leaves, in the given version of everything as far as it goes."""

    def story(d: Dialogue) -> None:
        joined = d.join(min(version, 9))
        member = joined.member_id
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = d.join(min(version, 9), member)
        generation = joined.generation_id
        d.describe(min(version, 6))
        d.commit(max(version, 2), 1, member, generation)
        d.sync(min(version, 5), member, generation, member)
        d.sync(min(version, 5), member, generation)
        d.heartbeat(min(version, 4), member, generation)
        d.describe(min(version, 6))
        d.listed(min(version, 5))
        commit = max(version, 2)
        d.commit(commit, 5, member, generation)
        d.commit(commit, 6, member, generation, topics=["t", "nowhere"], partitions=[1, 7])
        d.commit(commit, 7, member, generation, metadata="x" * 5000)
        d.commit(commit, 7, member, generation, metadata=None)
        d.commit(commit, 8, member, generation + 1)
        d.commit(commit, 8, "stranger", generation)
        d.commit(commit, 8)
        d.fetch(max(version, 1), ["t", "nowhere"])
        if version >= 2:
            d.fetch(version)
        d.heartbeat(min(version, 4), member, generation + 1)
        d.heartbeat(min(version, 4), "stranger", generation)
        d.sync(min(version, 5), member, generation + 1)
        d.sync(min(version, 5), "stranger", generation)
        d.join(min(version, 9), "stranger")
        d.offset_delete("t", "nowhere")
        d.delete(min(version, 2), d.group, "nobody", d.group)
        d.leave(min(version, 5), ("stranger", None))
        d.leave(min(version, 5), (member, None))
        d.describe(min(version, 6))
        d.listed(min(version, 5))
        d.commit(commit, 9)
        d.fetch(max(version, 1), ["t"])
        d.offset_delete("t", "nowhere")
        d.fetch(max(version, 1), ["t"])
        d.delete(min(version, 2), d.group)
        d.describe(min(version, 6))

    return story


def requests_that_are_wrong(d: Dialogue) -> None:
    for version in range(10):
        d.join(version, group_id="")
        d.join(version, session_timeout_ms=1)
        d.join(version, session_timeout_ms=2_000_000_000)
        d.join(version, protocols={})
        d.join(version, protocol_type="")
        d.join(version, "stranger")
    for version in range(6):
        d.sync(version, "m", 1, group_id="")
        d.sync(version, "m", 1)
        d.leave(version, ("m", None), group_id="")
        d.leave(version, ("m", None))
    d.sync(5, "m", 1, protocol_type=None)
    d.sync(5, "m", 1, protocol_name=None)
    for version in range(5):
        d.heartbeat(version, "m", 1, group_id="")
        d.heartbeat(version, "m", 1)
    for version in range(2, 11):
        d.commit(version, 1, "m", 5)
        d.commit(version, 1, group_id="")
    for version in range(1, 11):
        d.fetch(version, ["t"], group_id="nobody")
        d.fetch(version, ["t"], group_id="")
    for version in range(7):
        d.describe(version, "nobody", "")
    for version in range(3):
        d.delete(version, "nobody", "")
    d.offset_delete("t", group_id="nobody")
    d.offset_delete("t", group_id="")


def static_members(d: Dialogue) -> None:
    first = d.join(9, group_instance_id="i")
    d.sync(5, first.member_id, first.generation_id, first.member_id, group_instance_id="i")
    again = d.join(9, group_instance_id="i")
    d.heartbeat(4, first.member_id, first.generation_id, group_instance_id="i")
    d.sync(5, first.member_id, first.generation_id, group_instance_id="i")
    d.commit(9, 1, first.member_id, first.generation_id, group_instance_id="i")
    d.join(9, first.member_id, group_instance_id="i")
    d.join(9, again.member_id, group_instance_id="other")
    d.sync(5, again.member_id, again.generation_id, group_instance_id="i")
    d.commit(9, 1, again.member_id, again.generation_id, group_instance_id="i")
    older = d.join(8, group_instance_id="i")
    d.sync(5, older.member_id, older.generation_id, group_instance_id="i")
    d.describe(6)
    d.leave(5, (first.member_id, "i"), ("", "nobody"), (older.member_id, "other"))
    d.leave(5, ("", "i"))
    d.describe(6)


def other_protocols(d: Dialogue) -> None:
    joined = d.join(3, protocol_type="connect", protocols={"sessioned": b"s", "eager": b"e"})
    d.join(3, protocol_type="consumer")
    d.join(3, protocol_type="connect", protocols={"other": b"o"})
    d.sync(5, joined.member_id, 1, protocol_type="connect", protocol_name="eager")
    d.sync(5, joined.member_id, 1, joined.member_id, protocol_type="connect", protocol_name="sessioned")
    d.offset_delete("t")
    d.describe(6)
    d.listed(5, types_filter=["CLASSIC"], states_filter=["stable"])
    d.listed(5, types_filter=["share"])
    d.listed(5, states_filter=["Empty", "no such state"])
    d.leave(3, (joined.member_id, None))
    d.offset_delete("t")
    d.listed(4, states_filter=["EMPTY"])


STORIES: dict[str, Story] = {
    **{f"version {version}": the_life_of_a_group(version) for version in range(11)},
    "wrong requests": requests_that_are_wrong,
    "static members": static_members,
    "other protocols": other_protocols,
}


@pytest.mark.parametrize("name", STORIES)
def test_both_answer_the_same(sides: list[Dialogue], name: str) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    transcripts = []
    for side in sides:
        wait_for_coordinator(side.client, group)
        side.group, side.transcript, side._names = group, [], {}
        STORIES[name](side)
        transcripts.append(side.transcript)
    differences = list(
        difflib.unified_diff(transcripts[0], transcripts[1], "Kafka", "Ottla", lineterm="", n=8)
    )
    assert not differences, "\n".join(differences)
