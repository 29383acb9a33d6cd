"""Sends a write on to the leader, with the client's own credentials, and gives its answer back.

The leader says how far its topics are, so that a follower answers when its own reads know what was written.
"""

from __future__ import annotations

import http.client
import ssl
from typing import Final

from ottla.registry.errors import forwarding_failed
from ottla.registry.leader import Identity
from ottla.registry.limits import MAX_BODY_BYTES
from ottla.registry.rest.http import Answer, Request

FORWARDED: Final = "x-forward"
"""The header that Confluent's registry sets too: a request that has it is not sent on again."""
READ_UP_TO: Final = "x-ottla-read-up-to"
"""The header of a leader's answer: the next offsets of its topics."""
_TIMEOUT_S: Final = 30.0
_PASSED: Final = ("content-type", "accept", "authorization")


def forward(leader: Identity, request: Request) -> tuple[Answer, list[int]]:
    """The leader's answer to a request, and how far its topics are; 50003 if it does not answer.

    Only a leader of Ottla says how far it is.
    """
    headers: dict[str, str] = {name: request.headers[name] for name in _PASSED if name in request.headers}
    headers[FORWARDED] = "true"
    connection: http.client.HTTPConnection
    if leader.scheme == "https":
        connection = http.client.HTTPSConnection(
            leader.host, leader.port, timeout=_TIMEOUT_S, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(leader.host, leader.port, timeout=_TIMEOUT_S)
    try:
        connection.request(request.method, request.target, request.body or None, headers)
        response = connection.getresponse()
        body = response.read(MAX_BODY_BYTES)
        if response.length:
            # A leader that dies inside its answer has said nothing: a part of one must not pass for it.
            raise http.client.IncompleteRead(body, response.length)
        answer = Answer(None, response.status, body, response.getheader("content-type"))
        return answer, _offsets(response.getheader(READ_UP_TO, ""))
    except (OSError, http.client.HTTPException) as error:
        raise forwarding_failed(f"{leader.url} does not answer ({error})") from None
    finally:
        connection.close()


def _offsets(given: str) -> list[int]:
    words = given.split(",")[:2]
    return [int(word) for word in words] if all(word.isdecimal() and len(word) < 20 for word in words) else []
