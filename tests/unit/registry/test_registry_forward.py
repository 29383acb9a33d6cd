"""A server that dies inside its answer: neither a follower nor a client takes the beginning for the whole."""

from __future__ import annotations

import socket
import threading

import pytest

from ottla.registry.errors import RegistryError
from ottla.registry.leader import Identity
from ottla.registry.rest.forward import forward
from ottla.registry.rest.http import Request
from ottla.schemas import Registry, RegistryUnavailable

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n"


@pytest.fixture(params=[b"", b'{"id": 1'], ids=["no body", "half a body"])
def dying(request):
    """The port of a server that sends an answer's head and a part of its body, and is gone."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(HEAD + request.param)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_leader_that_dies_inside_its_answer_has_not_answered(dying):
    request = Request("POST", ("subjects", "s", "versions"), "/subjects/s/versions", {}, {}, b"{}")
    with pytest.raises(RegistryError) as failed:
        forward(Identity("127.0.0.1", dying), request)
    assert failed.value.code == 50003


def test_a_client_does_not_take_half_an_answer(dying):
    with pytest.raises(RegistryUnavailable, match="the schema id 5"):
        Registry(f"http://127.0.0.1:{dying}").by_id(5)
