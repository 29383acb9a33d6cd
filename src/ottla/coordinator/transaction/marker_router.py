"""Routes transaction markers to the leaders of their partitions: to this broker at once, to others by WriteTxnMarkers.

The other half of Kafka's TransactionMarkerChannelManager (see `marker_manager.py`). When a leader changes before the
response, the partition is reported as failed, so that the marker is sent to the new leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ottla.clock import Clock
from ottla.coordinator.outbox import Outbox
from ottla.coordinator.transaction.marker_manager import MarkersDone, MarkerWriter, TxnMarker
from ottla.errors import ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.log.types import TopicPartition
from ottla.metadata.endpoints import leader_of
from ottla.metadata.image import NO_LEADER, MetadataImage
from ottla.peers import BrokerPeers, PeerFailure
from ottla.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse


class _RemoteMarker:
    """A marker that another broker has to write."""

    __slots__ = ("_done", "marker", "open")

    def __init__(self, marker: TxnMarker, partitions: Iterable[TopicPartition], done: MarkersDone) -> None:
        self.marker = marker
        self.open = set(partitions)
        """Partitions without a result so far."""
        self._done = done

    def settle(self, results: Mapping[TopicPartition, ErrorCode]) -> None:
        settled = {tp: code for tp, code in results.items() if tp in self.open}
        self.open.difference_update(settled)
        if settled:
            self._done(settled)


class TransactionMarkerRouter:
    """Implements `MarkerWriter` for partitions of all leaders in the cluster."""

    __slots__ = ("_brokers", "_image", "_in_flight", "_local", "_node_id", "_outbox", "_timeout_s")

    def __init__(
        self,
        node_id: int,
        clock: Clock,
        image: Callable[[], MetadataImage],
        local: MarkerWriter,
        brokers: BrokerPeers,
        timeout_s: float,
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._local = local
        self._brokers = brokers
        self._timeout_s = timeout_s
        self._outbox: Outbox[BrokerId, _RemoteMarker] = Outbox(clock, self._send)
        self._in_flight: dict[BrokerId, dict[_RemoteMarker, None]] = {}
        """By broker, in the order of sending, in which they are also sent again."""

    def write(self, marker: TxnMarker, partitions: Iterable[TopicPartition], done: MarkersDone) -> None:
        """Write a marker. `done` is called once or more, each time with the partitions that have a new result."""
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        image = self._image()
        for tp in partitions:
            by_leader.setdefault(leader_of(image, *tp), []).append(tp)
        for leader, led in by_leader.items():
            if leader == self._node_id:
                self._local.write(marker, led, done)
            elif leader == NO_LEADER:
                done(dict.fromkeys(led, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            else:
                remote = _RemoteMarker(marker, led, done)
                self._in_flight.setdefault(leader, {})[remote] = None
                self._outbox.add(leader, remote)

    def leaders_changed(self, image: MetadataImage) -> None:
        """New metadata was published: fail markers that wait for a broker that no longer leads their partition."""
        for broker, remotes in list(self._in_flight.items()):
            for remote in list(remotes):
                moved = [tp for tp in remote.open if leader_of(image, *tp) != broker]
                remote.settle(dict.fromkeys(moved, ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def close(self) -> None:
        self._brokers.close()

    def _send(self, broker: BrokerId, batch: list[_RemoteMarker]) -> None:
        def responded(response: WriteTxnMarkersResponse) -> None:
            codes: dict[tuple[int, TopicPartition], ErrorCode] = {
                (marker.producer_id, TopicPartition(topic.name, partition.partition_index)): ErrorCode.of(
                    partition.error_code
                )
                for marker in response.markers
                for topic in marker.topics
                for partition in topic.partitions
            }
            settle(lambda marker, tp: codes.get((marker.producer_id, tp), ErrorCode.UNKNOWN_SERVER_ERROR))

        def failed(failure: PeerFailure) -> None:
            settle(lambda marker, tp: ErrorCode.NETWORK_EXCEPTION)

        def settle(code_of: Callable[[TxnMarker, TopicPartition], ErrorCode]) -> None:
            for remote in batch:
                del self._in_flight[broker][remote]
            for remote in batch:
                remote.settle({tp: code_of(remote.marker, tp) for tp in remote.open})

        peer = self._brokers.to(broker)
        wanted = [remote for remote in batch if remote.open]
        if peer is None or not wanted:
            failed(PeerFailure.UNREACHABLE)
        else:
            peer.send(_request(wanted), responded, failed, timeout_s=self._timeout_s)


def _request(batch: Iterable[_RemoteMarker]) -> WriteTxnMarkersRequest:
    request = WriteTxnMarkersRequest
    markers = []
    for remote in batch:
        by_topic: dict[TopicName, list[int]] = {}
        for tp in sorted(remote.open):
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        marker = remote.marker
        markers.append(
            request.WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.commit,
                topics=[
                    request.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in by_topic.items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        )
    return request(markers=markers)
