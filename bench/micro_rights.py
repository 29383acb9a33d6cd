"""What rights and quotas cost a request, in µs of CPU: a node in this process, with and without them in turns."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench import load
from bench.micro import batch_of, connection_to, fetch_frame, produce_frame, whole_request
from ottla.api.authorization import allowed
from ottla.api.data import produce
from ottla.api.data.topic_rights import denied_topics
from ottla.cli.settings import node_config
from ottla.counters import RequestCounters
from ottla.ids import TopicName
from ottla.metadata.image import AclEntry
from ottla.net.request import Request
from ottla.security.authorizer import Authorizer
from ottla.server import Server
from ottla.testing.apache import free_port
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType

_ACLS = 10_000
_ROUNDS = 10
_SLICES = 40
_CALLS = 25
"""The least of many short slices counts: what else runs on the machine disturbs some of them."""
_ADAPTING_CALLS = 100
"""Before a slice, so that the interpreter has adapted to what is measured, as it has in a broker."""
_TOPIC = TopicName("micro")
_MORE_TOPICS = 20
_QUOTAS = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e9}


def _acls() -> dict[bytes, AclEntry]:
    """Rights of many users on many topics; one prefix lets `bench` write and read."""

    def acl(name: str, pattern: PatternType, user: str, operation: AclOperation) -> AclEntry:
        allow = AclPermissionType.ALLOW
        return AclEntry(ResourceType.TOPIC, name, pattern, f"User:{user}", "*", operation, allow)

    both = (AclOperation.WRITE, AclOperation.READ)
    entries = [acl("mic", PatternType.PREFIXED, "bench", operation) for operation in both]
    entries += [
        acl(f"topic-{n}", PatternType.LITERAL, f"user-{n % 500}", AclOperation.READ)
        for n in range(_ACLS - len(entries))
    ]
    return {os.urandom(16): entry for entry in entries}


def _authorizer() -> Authorizer:
    made = Authorizer("", allow_everyone_if_no_acl_found=False)
    made.update(_acls())
    made.complete_loading()
    return made


def _cpu(work: Callable[[], object]) -> float:
    """µs of one call, with what the loop takes."""
    return min(_slice(work) for _ in range(_SLICES))


def _slice(work: Callable[[], object]) -> float:
    begin = time.thread_time_ns()
    for _ in range(_CALLS):
        work()
    return (time.thread_time_ns() - begin) / _CALLS / 1000


def _decisions(server: Server, authorizer: Authorizer) -> dict[str, float]:
    """One decision as a handler asks for it, without the loop around it (an empty function, measured by itself)."""
    image = SimpleNamespace(topics=SimpleNamespace(by_id={}))
    node: Any = SimpleNamespace(authorizer=authorizer, image=image)
    counters = RequestCounters(ApiKey.PRODUCE)
    ctx = Request(connection_to(server, "User:bench"), produce.API, 9, 7, "bench", 0.0, counters)
    topics = [f"{_TOPIC}-{n}" for n in range(1 + _MORE_TOPICS)]
    decided = ctx.grants.topics
    write, topic = AclOperation.WRITE, ResourceType.TOPIC
    bit = 1 << write

    def nothing() -> None:
        pass

    def made_before() -> None:
        allowed(node, ctx, write, topic, _TOPIC)

    def new() -> None:
        decided.clear()
        allowed(node, ctx, write, topic, _TOPIC)

    def one() -> None:
        # As Produce does.
        known = ctx.known_topics(authorizer.generation)
        for name in topics[:1]:
            if not known.get(name, 0) & bit:
                denied_topics(node, ctx, write, topics[:1])

    def many() -> None:
        known = ctx.known_topics(authorizer.generation)
        for name in topics:
            if not known.get(name, 0) & bit:
                denied_topics(node, ctx, write, topics)

    works = (nothing, made_before, new, one, many)
    found = {work.__name__: min(_cpu(work) for _ in range(_ROUNDS)) for work in works}
    return {
        "an empty function in the loop, taken off the next three": found["nothing"],
        "decision made before": found["made_before"] - found["nothing"],
        "new decision": found["new"] - found["nothing"],
        "all of it in a Produce request with one topic": found["one"] - found["nothing"],
        "each further topic of a request, decided before": (found["many"] - found["one"]) / _MORE_TOPICS,
    }


def _requests(server: Server, authorizer: Authorizer) -> dict[str, float]:
    """A whole Produce of one record and a whole Fetch, and what they cost more with rights and with quotas."""
    connection = connection_to(server, "User:bench")
    frames = {
        "Produce request, one record": produce_frame(batch_of(1, 100)),
        "Fetch request, 64 kB of one partition": fetch_frame(1, 64 << 10),
    }
    found: dict[str, float] = {}
    for name, frame in frames.items():
        found |= _request(server, authorizer, name, whole_request(connection, frame))
    return found


def _request(
    server: Server, authorizer: Authorizer, name: str, request: Callable[[], None]
) -> dict[str, float]:
    broker = server.broker
    assert broker is not None
    taken: dict[str, list[float]] = {"plain": [], "rights": [], "quotas": []}
    for _ in range(_ROUNDS):
        least = dict.fromkeys(taken, float("inf"))
        for _ in range(_SLICES):
            for state in taken:
                broker.authorizer = authorizer if state == "rights" else None
                broker.quotas.update({(("user", "bench"),): _QUOTAS} if state == "quotas" else {})
                for _ in range(_ADAPTING_CALLS):
                    request()
                least[state] = min(least[state], _slice(request))
        for state, microseconds in least.items():
            taken[state].append(microseconds)
    broker.authorizer = None
    broker.quotas.update({})
    return {
        f"whole {name}": min(taken["plain"]),
        f"{name}: more with {_ACLS:,} ACLs": _more(taken["rights"], taken["plain"]),
        f"{name}: more with quotas that are not reached": _more(taken["quotas"], taken["plain"]),
    }


def _more(with_it: list[float], without: list[float]) -> float:
    """The median over rounds. The slices of a round are taken in turns, so on the same state of the machine."""
    return statistics.median(more - plain for more, plain in zip(with_it, without, strict=True))


async def _measure(directory: Path) -> dict[str, float]:
    port = free_port()
    server = Server(node_config(data=str(directory / "data"), listen=f"127.0.0.1:{port}"))
    await server.start()
    try:
        await asyncio.to_thread(load.create_topic, f"127.0.0.1:{port}", _TOPIC, 1)
        filling = load.Load(f"127.0.0.1:{port}", _TOPIC, records=1000, partitions=1)
        await asyncio.to_thread(load.run, "produce", filling)
        authorizer = _authorizer()
        return {**_decisions(server, authorizer), **_requests(server, authorizer)}
    finally:
        await server.stop()


def run() -> dict[str, float]:
    """µs by name."""
    with tempfile.TemporaryDirectory(prefix="ottla-micro-") as scratch:
        return asyncio.run(_measure(Path(scratch)))


if __name__ == "__main__":
    for name, microseconds in run().items():
        print(f"{microseconds:9.3f} µs  {name}")
