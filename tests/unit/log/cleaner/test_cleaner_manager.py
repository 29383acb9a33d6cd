"""The log manager runs the cleaner: a compacted topic of a started manager gets clean by itself."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from ottla.clock import SystemClock
from ottla.config.broker import SINGLE_NODE, BrokerConfig
from ottla.log.checkpoints import read_offsets
from ottla.log.fs import OsFs
from ottla.log.manager import LogManager
from ottla.log.types import TopicPartition
from ottla.records.batch import build_batch, iter_batches, iter_records
from ottla.records.record import Record
from unit.log.cleaner.cleaner_rig import topic_config


def test_a_started_manager_cleans_and_remembers_how_far(tmp_path):
    config = BrokerConfig({**SINGLE_NODE, "log.dirs": str(tmp_path), "log.cleaner.backoff.ms": "5"})
    clock = SystemClock()
    tp = TopicPartition("t", 0)
    path = f"{tmp_path}/cleaner-offset-checkpoint"

    async def scenario(executor):
        manager = LogManager(OsFs(), config, clock, executor)
        manager.open_dirs(None, 1)
        manager.load(lambda topic: topic_config())
        manager.start()
        log = manager.get_or_create(tp, clock.random_uuid(), topic_config())
        for value in (b"1", b"2", b"3"):
            raw = build_batch([Record(0, clock.now_ms(), b"k", value)])
            log.append_as_leader(raw, 0, now_ms=clock.now_ms())
            log.roll()
        log.high_watermark = log.log_end_offset
        while read_offsets(OsFs(), path).get(tp) != 3:  # noqa: ASYNC110 - a thread writes the file
            await asyncio.sleep(0.002)
        data = bytes(log.read(0, 1 << 20).records)
        manager.shutdown()
        return [r.value for pos, header in iter_batches(data) for r in iter_records(data, pos, header)]

    with ThreadPoolExecutor(2) as executor:
        values = asyncio.run(asyncio.wait_for(scenario(executor), 60))
    assert values == [b"3"]
