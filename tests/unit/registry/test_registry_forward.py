"""What a follower makes of the leader's answers: one that breaks off is none, and one about a write is waited for."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import contextmanager

import pytest

from ottla.registry.errors import RegistryError
from ottla.registry.leader import Identity
from ottla.registry.log import SchemasLog
from ottla.registry.rest.forward import forward
from ottla.registry.rest.http import Request
from ottla.registry.state import State
from ottla.schemas import Registry, RegistryUnavailable

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n"


@contextmanager
def answering(answer: bytes):
    """The port of a server that answers each connection with some bytes, and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture(params=[b"", b'{"id": 1'], ids=["no body", "half a body"])
def dying(request):
    """The port of a server that sends an answer's head and a part of its body, and is gone."""
    with answering(HEAD + request.param) as port:
        yield port


def test_a_leader_that_dies_inside_its_answer_has_not_answered(dying):
    request = Request("POST", ("subjects", "s", "versions"), "/subjects/s/versions", {}, {}, b"{}")
    with pytest.raises(RegistryError) as failed:
        forward(Identity("127.0.0.1", dying), request)
    assert failed.value.code == 50003


def test_a_client_does_not_take_half_an_answer(dying):
    with pytest.raises(RegistryUnavailable, match="the schema id 5"):
        Registry(f"http://127.0.0.1:{dying}").by_id(5)


@pytest.mark.parametrize(
    ("header", "offsets"),
    [("", []), ("X-Ottla-Read-Up-To: 7,3\r\n", [7, 3]), ("X-Ottla-Read-Up-To: -1,9x\r\n", [])],
    ids=["Confluent's", "Ottla's", "nonsense"],
)
def test_a_leader_says_how_far_its_topics_are(header, offsets):
    head = f"HTTP/1.1 409 Conflict\r\n{header}Content-Length: 2\r\n\r\n{{}}"
    request = Request("POST", ("subjects", "s", "versions"), "/subjects/s/versions", {}, {}, b"{}")
    with answering(head.encode()) as port:
        answer, found = forward(Identity("127.0.0.1", port), request)
    assert (answer.status, answer.raw, found) == (409, b"{}", offsets)


def test_a_follower_waits_until_it_has_read_what_the_leader_wrote(monkeypatch):
    async def scene() -> None:
        log = SchemasLog(lambda: None, "_schemas", 1, State(), "fence")
        reached = asyncio.ensure_future(log.reach(2))
        for offset in range(2):
            await asyncio.sleep(0)
            assert not reached.done()
            log._take([], offset + 1, 2)
        await reached
        # One that cannot read answers late rather than never, and keeps nothing of those that waited.
        monkeypatch.setattr("ottla.registry.log._REACH_S", 0.0)
        await log.reach(5)
        assert log._waiting == []

    asyncio.run(scene())
