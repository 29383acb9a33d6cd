"""Which broker keeps a share partition's state, and the way to it: its own shards here, else requests over the wire.

What is asked of one broker about one group in a turn of the loop goes in one request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.clock import Clock
from ottla.coordinator.outbox import Outbox
from ottla.coordinator.runtime import partition_for
from ottla.coordinator.share.service import Answer, ShareCoordinator, StateApi
from ottla.coordinator.share.state import StateKey
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.image import NO_LEADER
from ottla.peers import BrokerPeers, Message, PeerFailure


class _Way(NamedTuple):
    broker: int
    api: StateApi
    group_id: str


class _Question:
    """One share partition's part of a request. Answered once."""

    __slots__ = ("_done", "key", "part")

    def __init__(self, key: StateKey, part: Message, done: Answer) -> None:
        self.key = key
        self.part = part
        self._done: Answer | None = done

    @property
    def open(self) -> bool:
        return self._done is not None

    def answer(self, result: Message) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(result)


class ShareStateRoutes:
    """`ask` for state kept anywhere in the cluster; NOT_COORDINATOR when a broker does not answer, or not any more."""

    __slots__ = ("_brokers", "_in_flight", "_local", "_node_id", "_outbox", "_timeout_s")

    def __init__(
        self, node_id: int, clock: Clock, local: ShareCoordinator, brokers: BrokerPeers, timeout_s: float
    ) -> None:
        self._node_id = node_id
        self._local = local
        self._brokers = brokers
        self._timeout_s = timeout_s
        self._outbox: Outbox[_Way, _Question] = Outbox(clock, self._send)
        self._in_flight: dict[_Way, dict[_Question, None]] = {}
        """In the order in which they were asked, which is also that in which they are asked again."""

    def ask(self, api: StateApi, key: StateKey, part: Message, done: Answer) -> None:
        """See `ottla.coordinator.share.service.Ask`."""
        leader = self._leader(key)
        if leader == self._node_id or leader is None:
            # Without the topic, the answer says that too.
            self._local.ask(api, key, part, done)
        elif leader == NO_LEADER:
            done(_lost(api, key, "nobody leads the partition that keeps it"))
        else:
            way = _Way(leader, api, key.group_id)
            question = _Question(key, part, done)
            self._in_flight.setdefault(way, {})[question] = None
            self._outbox.add(way, question)

    def leaders_changed(self) -> None:
        """New metadata was published: nobody waits for a broker that is not the coordinator any more."""
        for way, questions in list(self._in_flight.items()):
            for question in [each for each in questions if self._leader(each.key) != way.broker]:
                question.answer(_lost(way.api, question.key, "another broker keeps it now"))

    def close(self) -> None:
        self._brokers.close()

    def _leader(self, key: StateKey) -> int | None:
        runtime = self._local.runtime
        count = runtime.partition_count
        return runtime.leader_of(partition_for(key.coordinator_key, count)) if count else None

    def _send(self, way: _Way, questions: list[_Question]) -> None:
        api = way.api

        def answered(response: Message) -> None:
            results = {
                (topic.topic_id, result.partition): result
                for topic in response.results
                for result in topic.partitions
            }
            settle(
                lambda question: (
                    results.get((question.key.topic_id, question.key.partition))
                    or _lost(api, question.key, "the share coordinator answered something else")
                )
            )

        def failed(failure: PeerFailure) -> None:
            settle(lambda question: _lost(api, question.key, failure.value))

        def settle(result_of: Callable[[_Question], Message]) -> None:
            waiting = self._in_flight[way]
            for question in questions:
                del waiting[question]
            if not waiting:
                del self._in_flight[way]
            for question in questions:
                question.answer(result_of(question))

        peer = self._brokers.to(way.broker)
        wanted = [question for question in questions if question.open]
        if peer is None or not wanted:
            failed(PeerFailure.UNREACHABLE)
        else:
            peer.send(_request(way, wanted), answered, failed, timeout_s=self._timeout_s)


def _lost(api: StateApi, key: StateKey, why: str) -> Message:
    return api.partition_result(
        key.partition, ApiException(ErrorCode.NOT_COORDINATOR, f"The share state cannot be reached: {why}")
    )


def _request(way: _Way, questions: list[_Question]) -> Message:
    by_topic: dict[bytes, list[Message]] = {}
    for question in questions:
        by_topic.setdefault(question.key.topic_id, []).append(question.part)
    topic_data = getattr(way.api.request, way.api.topic_data)
    return way.api.request(
        group_id=way.group_id,
        topics=[
            topic_data(topic_id=topic_id, partitions=partitions) for topic_id, partitions in by_topic.items()
        ],
    )
