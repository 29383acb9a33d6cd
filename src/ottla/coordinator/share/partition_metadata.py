"""Asks the leaders of partitions for their latest offsets, with which the group coordinator computes a share lag.

Questions to one broker in one turn of the loop share a ListOffsets request. The leader may be this broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.clock import Clock
from ottla.coordinator.outbox import Outbox
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.metadata.endpoints import leader_of
from ottla.metadata.image import NO_LEADER, MetadataImage
from ottla.peers import BrokerPeers, PeerFailure
from ottla.promise import Done
from ottla.wire.messages import ListOffsetsRequest, ListOffsetsResponse

_CONSUMER: Final = BrokerId(-1)
_LATEST: Final = -1
_ERRORS: Final = {
    PeerFailure.TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    PeerFailure.UNREACHABLE: ErrorCode.NETWORK_EXCEPTION,
    PeerFailure.DISCONNECTED: ErrorCode.NETWORK_EXCEPTION,
    PeerFailure.CLOSED: ErrorCode.NETWORK_EXCEPTION,
}
"""Other failures are UNKNOWN_SERVER_ERROR."""


class _Question(NamedTuple):
    topic: TopicName
    partition: int
    done: Done[int | ApiException]


class PartitionMetadataClient:
    """Kafka's class of this name. `local` returns the high watermark of a partition that this broker leads."""

    __slots__ = ("_brokers", "_image", "_local", "_node_id", "_outbox", "_timeout_s")

    def __init__(
        self,
        node_id: int,
        clock: Clock,
        image: Callable[[], MetadataImage],
        local: Callable[[TopicName, int], int],
        brokers: BrokerPeers,
        timeout_s: float,
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._local = local
        self._brokers = brokers
        self._timeout_s = timeout_s
        self._outbox: Outbox[BrokerId, _Question] = Outbox(clock, self._send)

    def latest_offset(self, topic: TopicName, partition: int, done: Done[int | ApiException]) -> None:
        """Call back with the high watermark at the leader, or with why it cannot be found out."""
        leader = leader_of(self._image(), topic, partition)
        if leader == NO_LEADER:
            done(ApiException(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader"))
        elif leader == self._node_id:
            try:
                found: int | ApiException = self._local(topic, partition)
            except ApiException as error:
                found = error
            done(found)
        else:
            self._outbox.add(leader, _Question(topic, partition, done))

    def close(self) -> None:
        """Close the connections; questions without an answer fail."""
        self._brokers.close()

    def _send(self, broker: BrokerId, questions: list[_Question]) -> None:
        def responded(response: ListOffsetsResponse) -> None:
            found = {
                (topic.name, part.partition_index): part
                for topic in response.topics
                for part in topic.partitions
            }
            for question in questions:
                part = found.get((question.topic, question.partition))
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if part is None else part.error_code
                if part is None or code:
                    question.done(ApiException(ErrorCode(code), f"Broker {broker} does not lead it"))
                else:
                    question.done(part.offset)

        def failed(failure: PeerFailure) -> None:
            code = _ERRORS.get(failure, ErrorCode.UNKNOWN_SERVER_ERROR)
            for question in questions:
                question.done(
                    ApiException(code, f"The leader, broker {broker}, cannot be asked: {failure.value}")
                )

        peer = self._brokers.to(broker)
        if peer is None:
            failed(PeerFailure.UNREACHABLE)
        else:
            peer.send(_request(questions), responded, failed, timeout_s=self._timeout_s)


def _request(questions: list[_Question]) -> ListOffsetsRequest:
    by_topic: dict[TopicName, list[ListOffsetsRequest.ListOffsetsPartition]] = {}
    for question in questions:
        by_topic.setdefault(question.topic, []).append(
            ListOffsetsRequest.ListOffsetsPartition(
                partition_index=question.partition, current_leader_epoch=-1, timestamp=_LATEST
            )
        )
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=0,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=partitions)
            for topic, partitions in by_topic.items()
        ],
    )
