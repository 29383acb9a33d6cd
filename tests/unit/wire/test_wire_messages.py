"""Message classes as their users see them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.wire import messages
from ottla.wire.apis import API_VERSIONS, ApiKey
from ottla.wire.messages import FetchRequest, FetchResponse, KRaftVersionRecord, all_messages
from ottla.wire.stubs import stub
from ottla.wire.uuid import ZERO_UUID


def test_a_class_knows_its_place_in_the_protocol():
    assert (FetchRequest.NAME, FetchRequest.API_KEY) == ("FetchRequest", 1)
    assert (FetchRequest.MIN_VERSION, FetchRequest.MAX_VERSION, FetchRequest.FIRST_FLEXIBLE) == (4, 18, 12)
    assert messages.request_class(ApiKey.FETCH) is FetchRequest
    assert messages.response_class(ApiKey.FETCH) is FetchResponse
    assert messages.EndTxnMarker.API_KEY is None


def test_the_table_of_apis_agrees_with_the_requests():
    for api in API_VERSIONS.values():
        request, response = messages.request_class(api.key), messages.response_class(api.key)
        assert f"{api.name}Request" == request.NAME
        assert response.MAX_VERSION == request.MAX_VERSION == api.max_version
        assert api.max_version < 0 or api.min_version == request.MIN_VERSION


def test_fields_have_the_defaults_of_the_schema():
    partition = FetchResponse.PartitionData()
    assert partition.last_stable_offset == -1
    assert partition.aborted_transactions == []
    assert partition.diverging_epoch.end_offset == -1
    assert partition.records is None
    request = FetchRequest()
    assert (request.replica_id, request.max_bytes, request.cluster_id) == (-1, 0x7FFFFFFF, None)
    assert FetchRequest.FetchTopic().topic_id == ZERO_UUID
    assert KRaftVersionRecord(kraft_version=1).kraft_version == 1


def test_each_message_has_lists_of_its_own():
    FetchRequest().topics.append(FetchRequest.FetchTopic())
    assert FetchRequest().topics == []


def test_the_shared_default_of_a_struct_field_cannot_be_filled_by_mistake():
    partition = FetchResponse.PartitionData()
    with pytest.raises(AttributeError):
        partition.current_leader.leader_id = 3
    partition.current_leader = FetchResponse.LeaderIdAndEpoch(leader_id=3)
    assert FetchResponse.PartitionData().current_leader.leader_id == -1


def test_equality_is_by_value():
    leader = FetchResponse.LeaderIdAndEpoch
    assert FetchResponse.PartitionData(current_leader=leader()) == FetchResponse.PartitionData()
    assert FetchResponse.PartitionData(current_leader=leader(leader_epoch=1)) != FetchResponse.PartitionData()
    assert leader() != FetchResponse.EpochEndOffset()
    assert FetchResponse() != 7
    assert FetchRequest(cluster_id="") != FetchRequest(cluster_id=None)
    assert FetchRequest(max_bytes=0) != FetchRequest(max_bytes=False + 1)


def test_a_message_shows_what_it_holds():
    assert "leader_id=3" in repr(FetchResponse.LeaderIdAndEpoch(leader_id=3))


def test_names_that_are_not_there_are_refused():
    with pytest.raises(AttributeError, match="NoSuchRequest"):
        messages.NoSuchRequest  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(TypeError):
        FetchRequest(no_such_field=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        FetchRequest().no_such_field = 1  # type: ignore[attr-defined]


def test_no_field_hides_a_class_attribute():
    for cls in all_messages():
        for struct in (cls.SCHEMA, *cls.MESSAGE.structs.values()):
            names = [field.name for field in struct.fields]
            assert len(set(names)) == len(names)
            assert all(name.islower() and name.isidentifier() for name in names)


def test_the_stub_of_the_messages_is_what_the_schema_table_gives():
    path = Path(messages.__file__).with_name("messages.pyi")
    assert path.read_text() == stub(), "run `python -m ottla.wire.stubs`"
