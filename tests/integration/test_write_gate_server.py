"""A whole node whose page cache is said to be full: producers wait, in order, and readers are answered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ottla.config.broker import BrokerConfig
from ottla.log import write_gate
from ottla.log.write_gate import WriteGate
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.server import Environment, Server
from ottla.testing.ports import free_ports
from ottla.testing.raw_client import RawClient
from ottla.wire import messages

T = TypeVar("T")


def in_thread(call: Callable[..., T], *args: Any) -> asyncio.Future[T]:
    return asyncio.ensure_future(asyncio.to_thread(call, *args))


def create(client: RawClient, name: str) -> bytes:
    request = messages.CreateTopicsRequest
    topic = request.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    (answer,) = client.ask(request(topics=[topic], timeout_ms=10_000), 7).topics
    assert answer.error_code == 0, answer
    found: bytes = answer.topic_id
    return found


def produce(topic_id: bytes, value: bytes, acks: int) -> Any:
    request = messages.ProduceRequest
    records = build_batch([Record(0, 1_700_000_000_000, None, value, ())], base_offset=0)
    partition = request.PartitionProduceData(index=0, records=records)
    data = request.TopicProduceData(topic_id=topic_id, partition_data=[partition])
    return request(acks=acks, timeout_ms=5000, topic_data=[data])


def fetch(topic_id: bytes) -> Any:
    request = messages.FetchRequest
    partition = request.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = request.FetchTopic(topic_id=topic_id, partitions=[partition])
    return request(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, topics=[topic])


def end_of(answer: Any) -> int:
    (topic,) = answer.responses
    end: int = topic.partitions[0].high_watermark
    return end


async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = [0.0]
    (port,) = free_ports(1)
    properties = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(tmp_path / "data"),
    }
    server = Server(BrokerConfig(properties), Environment(page_cache=lambda: full[0]))
    await server.start()
    assert server.node is not None
    gate = server.node.gate
    waiting = asyncio.Event()
    wait = gate.wait

    def wait_and_report(self: WriteGate, resume: Callable[[], None]) -> None:
        wait(resume)
        waiting.set()

    monkeypatch.setattr(WriteGate, "wait", wait_and_report)
    try:
        producer = await in_thread(RawClient, "127.0.0.1", port)
        reader = await in_thread(RawClient, "127.0.0.1", port)
        topic_id = await in_thread(create, producer, "events")
        await in_thread(producer.ask, produce(topic_id, b"first", -1), 13)
        full[0] = 1.0
        gate.hold()  # have it look at the very next request
        gate.release()
        for n, acks in enumerate((0, 1, 0, -1)):
            send = partial(producer.send, expects_answer=acks != 0)
            await in_thread(send, produce(topic_id, b"%d" % n, acks), 13)
        await waiting.wait()
        answer = await in_thread(reader.ask, fetch(topic_id), 13)
        assert end_of(answer) == 1, "a reader is answered, and nothing was appended"
        full[0] = 0.0
        answers = [await in_thread(producer.receive) for _ in range(2)]
        offsets = [each.responses[0].partition_responses[0].base_offset for each in answers]
        assert offsets == [2, 4]
        assert end_of(await in_thread(reader.ask, fetch(topic_id), 13)) == 5
        waiting.clear()
        full[0] = 1.0
        gate.hold()
        gate.release()
        await in_thread(producer.send, produce(topic_id, b"never", 1), 13)
        await waiting.wait()
    finally:
        await server.stop()
    with pytest.raises(ConnectionError):
        await in_thread(producer.receive)
    await in_thread(producer.close)
    await in_thread(reader.close)


def test_producers_wait_while_readers_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_gate, "LONGEST_WAIT_S", 600.0)
    asyncio.run(scene(tmp_path, monkeypatch))
