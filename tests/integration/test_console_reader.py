"""The console's reader on a real broker: searches that are taken up again, and requests that share a connection."""

import asyncio

from confluent_kafka import Producer

from ottla.admin.partitions import LATEST
from ottla.admin.settings import ClusterSettings
from ottla.console.reader.fetch import Reader
from ottla.console.reader.records import Found, forward
from ottla.testing import BrokerProcess

_RECORDS = 120
_PAGE = 50


def test_a_search_in_pages_looks_at_every_offset_once(broker: BrokerProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 500})
    for number in range(_RECORDS):
        producer.produce(topic, f"A-17 {number}")
    producer.flush()
    pages = asyncio.run(_pages(broker.bootstrap, topic))
    assert [len(page.records) for page in pages] == [_PAGE, _PAGE, _RECORDS - 2 * _PAGE]
    assert [page.looked_at for page in pages] == [_PAGE, _PAGE, _RECORDS - 2 * _PAGE]
    assert [page.complete for page in pages] == [False, False, True]
    assert pages[-1].share == 1.0


async def _pages(bootstrap: str, topic: str) -> list[Found]:
    host, _, port = bootstrap.rpartition(":")
    reader = Reader(ClusterSettings(((host, int(port)),)))
    try:
        pages = [await forward(reader, topic, {0: 0}, _PAGE, needles=(b"A-17",))]
        while not pages[-1].complete:
            pages.append(await forward(reader, topic, pages[-1].following, _PAGE, needles=(b"A-17",)))
        return pages
    finally:
        await reader.close()


def test_somebody_who_leaves_does_not_cut_off_those_who_wait_behind(
    broker: BrokerProcess, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, "x", partition=0)
    producer.flush()
    assert asyncio.run(_behind_one_who_leaves(broker.bootstrap, topic)) == {0: 1}


async def _behind_one_who_leaves(bootstrap: str, topic: str) -> dict[int, int]:
    host, _, port = bootstrap.rpartition(":")
    reader = Reader(ClusterSettings(((host, int(port)),)))
    try:
        await reader.offsets(topic, {0: LATEST})
        leaving, waiting = (asyncio.create_task(reader.offsets(topic, {0: LATEST})) for _ in range(2))
        # One turn of the loop: the first one has the connection they share, the second one waits for it.
        await asyncio.sleep(0)
        leaving.cancel()
        return await waiting
    finally:
        await reader.close()
