"""The bench's one-record clients begin once the broker knows of the new topic."""

from __future__ import annotations

import socket
import struct
import threading

import pytest
from bench.load import Load
from bench.load.sockets import _Client

from ottla.errors import ErrorCode
from ottla.ids import TopicName
from ottla.wire.headers import encode_response
from ottla.wire.messages import ProduceResponse


def answer(code: int) -> bytes:
    partition = ProduceResponse.PartitionProduceResponse(index=0, error_code=code, base_offset=0)
    topic = ProduceResponse.TopicProduceResponse(name=TopicName("t"), partition_responses=[partition])
    return b"".join(encode_response(1, ProduceResponse(responses=[topic]), 9))


def serve(door: socket.socket, codes: list[int]) -> None:
    taken, _ = door.accept()
    with taken:
        for code in codes:
            (size,) = struct.unpack(">i", taken.recv(4, socket.MSG_WAITALL))
            taken.recv(size, socket.MSG_WAITALL)
            taken.sendall(answer(code))


@pytest.mark.parametrize("refused", ["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"])
def test_a_client_asks_again_while_its_broker_has_not_heard_of_the_topic(refused: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        server = threading.Thread(target=serve, args=(door, [ErrorCode[refused], ErrorCode[refused], 0]))
        server.start()
        client = _Client(Load("unused", "t"), 0, f"127.0.0.1:{door.getsockname()[1]}")
        server.join()
        client.socket.close()
    assert client.answer_size == len(answer(0))


def test_another_error_ends_the_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        server = threading.Thread(target=serve, args=(door, [ErrorCode.TOPIC_AUTHORIZATION_FAILED]))
        server.start()
        with pytest.raises(AssertionError, match="error 29"):
            _Client(Load("unused", "t"), 0, f"127.0.0.1:{door.getsockname()[1]}")
        server.join()
