"""A whole node reports the small requests of clients to its busy poller, and no large ones."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.config.broker import BrokerConfig
from ottla.net import endpoints as front
from ottla.net.connection import Connection
from ottla.server import Server
from ottla.testing.raw_client import RawClient
from ottla.wire import messages


class Recorder:
    def __init__(self) -> None:
        self.clients: list[object] = []

    def asked(self, client: object, now: float) -> None:
        self.clients.append(client)


def talk(port: int) -> None:
    """Three small requests and a large one."""
    with RawClient("127.0.0.1", port) as client:
        for _ in range(3):
            client.ask(messages.ApiVersionsRequest(), 0)
        asked = messages.MetadataRequest.MetadataRequestTopic
        topics = [asked(name=f"{n:0200}") for n in range(40)]
        client.ask(messages.MetadataRequest(topics=topics, allow_auto_topic_creation=False), 8)


async def scene(tmp_path: Path) -> None:
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
    server = Server(BrokerConfig.single_node(config))
    await server.start()
    try:
        (_, port) = next(iter(server.addresses.values()))
        await asyncio.to_thread(talk, port)
    finally:
        await server.stop()


def test_connections_tell_of_small_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr(front, "busy_poll", lambda monotonic, call_soon: recorder)
    asyncio.run(scene(tmp_path))
    assert len(recorder.clients) == 3
    (client,) = set(recorder.clients)
    assert isinstance(client, Connection)
