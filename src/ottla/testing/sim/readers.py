"""Simulated readers: read partitions from the beginning, and record every response."""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.log.types import TopicPartition
from ottla.records.batch import HEADER_SIZE, check_crc, iter_batches, iter_records
from ottla.testing.sim.history import History, Poll
from ottla.testing.sim.wire_client import NotSent, Unanswered, WireClient
from ottla.wire import messages

_FETCH: Final = 12


class Reader:
    """Reads one partition after the other, each from its last position."""

    def __init__(
        self,
        client: WireClient,
        history: History,
        partitions: list[TopicPartition],
        pause_s: float,
        *,
        committed_only: bool,
        name: str | None = None,
    ) -> None:
        self.name = name or client.name
        self.client = client
        self.pause_s = pause_s
        self.history = history
        self.committed_only = committed_only
        self.positions = dict.fromkeys(partitions, 0)

    async def run(self) -> None:
        while True:
            for tp in self.positions:
                await self.poll(tp)
            await asyncio.sleep(self.client.random.random() * self.pause_s * 2)

    async def poll(self, tp: TopicPartition) -> bool:
        """Fetch once; returns whether a response came."""
        position = self.positions[tp]
        try:
            leader = await self.client.leader(tp)
        except (NotSent, Unanswered):
            return False
        request = messages.FetchRequest
        partition = request.FetchPartition(
            partition=tp.partition,
            current_leader_epoch=self.client.leader_epoch(tp),
            fetch_offset=position,
            partition_max_bytes=1 << 20,
        )
        asked = request(
            replica_id=BrokerId(-1),
            max_wait_ms=50,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=int(self.committed_only),
            session_epoch=-1,
            topics=[request.FetchTopic(topic=tp.topic, partitions=[partition])],
        )
        try:
            answer = await self.client.ask(leader, asked, _FETCH)
        except (NotSent, Unanswered):
            self.client.forget_leader(tp)
            return False
        if answer.error_code:
            self.client.forget_leader(tp)
            return False
        found = answer.responses[0].partitions[0]
        if found.error_code:
            self.client.forget_leader(tp)
            if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.history.anomalies.append(
                    f"{self.name} had read {tp} up to {position} and got OFFSET_OUT_OF_RANGE"
                )
            return False
        self._note(tp, position, found)
        return True

    def _note(self, tp: TopicPartition, position: int, found: messages.FetchResponse.PartitionData) -> None:
        limit = found.last_stable_offset if self.committed_only else found.high_watermark
        aborted = sorted((a.first_offset, a.producer_id) for a in found.aborted_transactions or ())
        records: list[tuple[int, bytes]] = []
        dead: set[int] = set()
        data = found.records or b""
        end = position
        for pos, header in iter_batches(data) if len(data) >= HEADER_SIZE else ():
            if not check_crc(data, pos, header):
                # A client that checks does not go on; another leader may have an undamaged disk.
                self.client.forget_leader(tp)
                break
            while aborted and aborted[0][0] <= header.last_offset:
                dead.add(aborted.pop(0)[1])
            end = max(end, header.last_offset + 1)
            if header.is_control:
                dead.discard(header.producer_id)
                continue
            if self.committed_only and header.is_transactional and header.producer_id in dead:
                continue
            records += [
                (r.offset, bytes(r.value or b""))
                for r in iter_records(data, pos, header)
                if r.offset >= position
            ]
        now = self.client.loop.time()
        self.history.polls.append(Poll(self.name, tp, self.committed_only, records, limit, now))
        self.positions[tp] = end
