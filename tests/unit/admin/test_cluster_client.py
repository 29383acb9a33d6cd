"""The cluster client against a broker made of canned responses: discovery, decoding, pipelining and retries."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ottla.admin.cluster import Cluster
from ottla.admin.connection import ConnectionFailed
from ottla.admin.retries import RETRIABLE, RETRIABLE_FOR_WRITERS, Backoff
from ottla.admin.settings import ClusterSettings
from ottla.errors import ApiException, ErrorCode
from ottla.limits import DECODE_AMPLIFICATION, DECODE_FLOOR_BYTES
from ottla.wire.apis import ApiKey
from ottla.wire.codec import decode, encode
from ottla.wire.errors import DecodeError
from ottla.wire.headers import encode_response, read_request_start
from ottla.wire.messages import (
    ApiVersionsResponse,
    FindCoordinatorResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MetadataResponse,
)

Respond = Callable[[int, int], object]
"""From an API key and a version to the response."""

VERSIONS = {ApiKey.API_VERSIONS: 4, ApiKey.METADATA: 12, ApiKey.FIND_COORDINATOR: 4, ApiKey.LIST_GROUPS: 4}


def hello() -> ApiVersionsResponse:
    api = ApiVersionsResponse.ApiVersion
    return ApiVersionsResponse(
        api_keys=[api(api_key=key, min_version=0, max_version=last) for key, last in VERSIONS.items()]
    )


@contextmanager
def broker(respond: Respond, *, connections: int = 1) -> Iterator[int]:
    """A listener on a thread that answers each request by its key; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for _ in range(connections):
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer, peer.makefile("rb") as reader:
                while head := reader.read(4):
                    frame = reader.read(struct.unpack(">i", head)[0])
                    key, version, number, _, _ = read_request_start(frame)
                    answer = hello() if key == ApiKey.API_VERSIONS else respond(key, version)
                    if answer is None:
                        break
                    peer.sendall(b"".join(encode_response(number, answer, version)))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
        thread.join(10)


def cluster_at(port: int, **settings: object) -> Cluster:
    return Cluster(ClusterSettings(bootstrap=(("127.0.0.1", port),), **settings))  # type: ignore[arg-type]


def large_metadata(topics: int, partitions: int, replicas: int) -> MetadataResponse:
    topic, partition = MetadataResponse.MetadataResponseTopic, MetadataResponse.MetadataResponsePartition
    ids = list(range(1, replicas + 1))
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=one, host="127.0.0.1", port=9092) for one in ids
        ],
        cluster_id="large",
        controller_id=1,
        topics=[
            topic(
                name=f"topic-{number}",
                topic_id=number.to_bytes(16, "big"),
                partitions=[
                    partition(
                        partition_index=index, leader_id=1, leader_epoch=1, replica_nodes=ids, isr_nodes=ids
                    )
                    for index in range(partitions)
                ],
            )
            for number in range(topics)
        ],
    )


def test_the_metadata_of_a_large_cluster_is_read() -> None:
    """5,000 topics x 4 partitions x 3 replicas exceed the bound for requests, which must not hold for clients."""
    response = large_metadata(5_000, 4, 3)
    frame = encode(response, 12)
    with pytest.raises(DecodeError):
        decode(MetadataResponse, 12, frame)
    assert max(DECODE_FLOOR_BYTES, DECODE_AMPLIFICATION * len(frame)) == DECODE_FLOOR_BYTES
    with broker(lambda key, version: response) as port:
        cluster = cluster_at(port)
        found = cluster.metadata()
        assert len(found.topics) == 5_000
        assert sum(len(topic.partitions) for topic in found.topics) == 20_000
        assert (sorted(cluster.nodes()), cluster.controller_id) == ([1, 2, 3], 1)
        cluster.close()


def test_a_response_that_comes_between_waits_for_its_reader() -> None:
    with broker(lambda key, version: ListGroupsResponse(error_code=key)) as port:
        cluster = cluster_at(port)
        connection = cluster.any()
        for _ in range(2):
            connection.send(ListGroupsRequest(), connection.agreed_version(ApiKey.LIST_GROUPS))
        assert connection.ask(ListGroupsRequest()).error_code == ApiKey.LIST_GROUPS
        assert connection.in_flight == 2
        assert isinstance(connection.receive(), ListGroupsResponse)
        assert isinstance(connection.receive(), ListGroupsResponse)
        assert connection.in_flight == 0
        cluster.close()


def test_a_broken_connection_is_opened_again() -> None:
    answers: list[object] = [None, ListGroupsResponse()]
    with broker(lambda key, version: answers.pop(0), connections=2) as port:
        cluster = cluster_at(port)
        assert cluster.ask(ListGroupsRequest()).error_code == 0
        assert not answers
        cluster.close()


def test_an_error_that_passes_is_retried_and_another_is_raised() -> None:
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]
    asked: list[int] = []

    def respond(key: int, version: int) -> object:
        if key == ApiKey.METADATA:
            return large_metadata(0, 0, 3)
        asked.append(key)
        coordinator = FindCoordinatorResponse.Coordinator
        return FindCoordinatorResponse(
            coordinators=[coordinator(key="g", node_id=2, host="127.0.0.1", port=1, error_code=codes.pop(0))]
        )

    with broker(respond) as port:
        cluster = cluster_at(port, retry_backoff_s=0.001)
        assert cluster.coordinator("g") == 2
        assert len(asked) == 3
        codes[:] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
        with pytest.raises(ApiException, match="not authorized for this group"):
            cluster.coordinator("g")
        cluster.close()


def test_nobody_at_the_bootstrap_address_is_known_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionFailed, match=f"no broker answers at 127.0.0.1:{port}"):
        cluster_at(port).coordinator("g")


def test_the_back_off_doubles_up_to_its_longest_pause() -> None:
    backoff = Backoff(0.1, 1.0)
    for expected in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        assert 0.8 * expected <= backoff.next_s() <= 1.2 * expected


def test_only_writers_wait_for_what_does_not_exist() -> None:
    assert {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    } == RETRIABLE_FOR_WRITERS - RETRIABLE
