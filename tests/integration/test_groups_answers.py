"""What group requests answer before there is a coordinator, for unknown groups and with a protocol switched off."""

from __future__ import annotations

import time
from collections.abc import Callable

from ottla.errors import ErrorCode
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire import messages

Start = Callable[..., BrokerProcess]


def client_of(broker: BrokerProcess) -> RawClient:
    return RawClient(broker.host, broker.port)


def make_offsets_topic(client: RawClient) -> None:
    """Ask for a coordinator until its topic exists: each request waits for the creation that it caused."""
    deadline = time.monotonic() + 60
    request = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    while client.ask(request, 4).coordinators[0].error_code:
        assert time.monotonic() < deadline


def test_before_there_is_an_offsets_topic_no_broker_is_the_coordinator(start_broker: Start) -> None:
    with client_of(start_broker()) as client:
        asked = messages.OffsetFetchRequest
        group = asked.OffsetFetchRequestGroup(group_id="g", topics=None)
        [found] = client.ask(asked(groups=[group]), 8).groups
        assert found.error_code == ErrorCode.NOT_COORDINATOR
        [described] = client.ask(messages.ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
        assert described.error_code == ErrorCode.NOT_COORDINATOR


def test_an_unknown_group_is_named_in_kafkas_words(start_broker: Start) -> None:
    with client_of(start_broker()) as client:
        make_offsets_topic(client)
        [described] = client.ask(messages.DescribeGroupsRequest(groups=["g"]), 6).groups
        assert (described.error_code, described.error_message) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            "Group g not found.",
        )


def test_a_protocol_that_is_switched_off_is_refused_without_a_message(start_broker: Start) -> None:
    broker = start_broker(settings={"group.coordinator.rebalance.protocols": "classic"})
    with client_of(broker) as client:
        beat = client.ask(messages.ConsumerGroupHeartbeatRequest(group_id="g", member_id="m"), 1)
        [described] = client.ask(messages.ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
        refused = (ErrorCode.UNSUPPORTED_VERSION, None)
        assert (beat.error_code, beat.error_message) == refused
        assert (described.error_code, described.error_message) == refused
