"""Many topics at once on plain sockets: create them, and write to every partition until all accept it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from ottla.ids import TopicName
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.testing.raw_client import RawClient
from ottla.wire.messages import CreateTopicsRequest, MetadataRequest, ProduceRequest

PARTITIONS_EACH = 10
_TOPICS_A_REQUEST = 50
_PARTITIONS_A_REQUEST = 500
_CREATE_VERSION = 7
_METADATA_VERSION = 12
_PRODUCE_VERSION = 9
_ALREADY_EXISTS = 36
_DEADLINE_S = 300.0
_PAUSE_S = 0.02
_TIMEOUT_S = 60.0

Partition = tuple[str, int]


def topics_for(partitions: int) -> list[str]:
    """Their names, for so many partitions in all."""
    return [f"many-{number:04}" for number in range(max(1, partitions // PARTITIONS_EACH))]


def create(bootstrap: str, topics: Iterable[str], replicas: int) -> None:
    """Create the topics one after the other, like an admin's script."""
    with _any(bootstrap) as client:
        for names in _pieces(topics, _TOPICS_A_REQUEST):
            request = CreateTopicsRequest(
                topics=[
                    CreateTopicsRequest.CreatableTopic(
                        name=name, num_partitions=PARTITIONS_EACH, replication_factor=replicas
                    )
                    for name in names
                ],
                timeout_ms=int(_TIMEOUT_S * 1000),
            )
            for topic in client.ask(request, _CREATE_VERSION).topics:
                assert topic.error_code in (0, _ALREADY_EXISTS), (topic.name, topic.error_message)


def write_everywhere(bootstrap: str, topics: list[str], acks: int = -1, size: int = 100) -> float:
    """Write a record to every partition, with retries. Returns the seconds until the last one was accepted."""
    begin = time.monotonic()
    batch = build_batch([Record(0, int(time.time() * 1000), None, b"x" * size, ())])
    missing = {(topic, index) for topic in topics for index in range(PARTITIONS_EACH)}
    with Clients() as clients:
        while missing:
            if time.monotonic() - begin > _DEADLINE_S:
                raise TimeoutError(f"{len(missing)} partitions accept no writes")
            try:
                found = metadata(bootstrap, topics)
            except OSError:
                time.sleep(_PAUSE_S)
                continue
            clients.addresses = {each.node_id: (each.host, each.port) for each in found.brokers}
            by_leader: dict[int, list[Partition]] = defaultdict(list)
            for topic in found.topics:
                for each in topic.partitions:
                    if (topic.name, each.partition_index) in missing and each.leader_id >= 0:
                        by_leader[each.leader_id].append((topic.name, each.partition_index))
            taken = _write_round(clients, by_leader, batch, acks)
            missing -= taken
            if missing and not taken:
                time.sleep(_PAUSE_S)
    return time.monotonic() - begin


def until_all_in_sync(bootstrap: str, topics: list[str], replicas: int) -> float:
    """Seconds until every partition has all of its replicas in sync."""
    begin = time.monotonic()
    while time.monotonic() - begin < _DEADLINE_S:
        partitions = [each for topic in metadata(bootstrap, topics).topics for each in topic.partitions]
        if len(partitions) == len(topics) * PARTITIONS_EACH and all(
            len(each.isr_nodes) == replicas for each in partitions
        ):
            return time.monotonic() - begin
        time.sleep(_PAUSE_S)
    raise TimeoutError("not all replicas came back in sync")


def metadata(bootstrap: str, topics: list[str]) -> Any:
    """Return the metadata of these topics from any broker."""
    asked = [MetadataRequest.MetadataRequestTopic(name=TopicName(name)) for name in topics]
    with _any(bootstrap) as client:
        return client.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), _METADATA_VERSION)


class Clients:
    """A connection to each broker, made when it is needed and dropped when it breaks."""

    def __init__(self) -> None:
        self.addresses: dict[int, tuple[str, int]] = {}
        self._made: dict[int, RawClient] = {}

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._made.values():
            client.socket.close()

    def get(self, broker_id: int) -> RawClient:
        if broker_id not in self._made:
            self._made[broker_id] = RawClient(*self.addresses[broker_id], timeout_s=_TIMEOUT_S)
        return self._made[broker_id]

    def drop(self, broker_id: int) -> None:
        client = self._made.pop(broker_id, None)
        if client is not None:
            client.socket.close()


def _write_round(
    clients: Clients, by_leader: dict[int, list[Partition]], batch: bytes, acks: int
) -> set[Partition]:
    """Send every leader one request for its partitions. Returns the partitions that accepted it."""
    asked: list[tuple[int, int]] = []
    for broker_id, partitions in by_leader.items():
        requests = [_produce(piece, batch, acks) for piece in _pieces(partitions, _PARTITIONS_A_REQUEST)]
        try:
            for request in requests:
                clients.get(broker_id).send(request, _PRODUCE_VERSION)
        except OSError:
            clients.drop(broker_id)
        else:
            asked.append((broker_id, len(requests)))
    taken: set[Partition] = set()
    for broker_id, count in asked:
        try:
            for _ in range(count):
                answer = clients.get(broker_id).receive()
                taken |= {
                    (topic.name, each.index)
                    for topic in answer.responses
                    for each in topic.partition_responses
                    if each.error_code == 0
                }
        except OSError:
            clients.drop(broker_id)
    return taken


def _produce(partitions: Iterable[Partition], batch: bytes, acks: int) -> Any:
    by_topic: dict[str, list[Any]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(ProduceRequest.PartitionProduceData(index=index, records=batch))
    return ProduceRequest(
        acks=acks,
        timeout_ms=int(_TIMEOUT_S * 1000) // 2,
        topic_data=[
            ProduceRequest.TopicProduceData(name=TopicName(topic), partition_data=data)
            for topic, data in by_topic.items()
        ],
    )


def _any(bootstrap: str) -> RawClient:
    """Connect to the first broker that accepts a connection."""
    reason: OSError = ConnectionError("no broker is named")
    for address in bootstrap.split(","):
        host, _, port = address.rpartition(":")
        try:
            return RawClient(host, int(port), timeout_s=_TIMEOUT_S)
        except OSError as error:
            reason = error
    raise reason


def _pieces(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    it = iter(items)
    while piece := list(islice(it, size)):
        yield piece
