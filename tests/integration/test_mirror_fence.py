"""What a mirror rests on: plain batches under a transactional id's producer id, and empty markers that fence."""

from __future__ import annotations

import pytest

from ottla.admin.cluster import Cluster
from ottla.admin.settings import ClusterSettings
from ottla.admin.topics import NewTopic, create_topics
from ottla.errors import ApiException, ErrorCode
from ottla.mirror.copying import pieces_of, sealed
from ottla.mirror.ownership import Identity, LaneOwner
from ottla.pipeline.fetching import LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from ottla.pipeline.writer import BatchWriter, Grant, Place
from ottla.records.batch import build_batch, read_header
from ottla.records.record import Record
from ottla.testing import BrokerProcess
from ottla.testing.apache import ApacheKafka


@pytest.fixture(params=["ottla", pytest.param("apache", marks=[pytest.mark.java, pytest.mark.slow])])
def brokers(request, tmp_path):
    if request.param == "ottla":
        with BrokerProcess(tmp_path / "target") as broker:
            yield connected(broker.bootstrap)
        return
    kafka = ApacheKafka(tmp_path / "kafka")
    kafka.format()
    kafka.start()
    try:
        yield connected(kafka.bootstrap)
    finally:
        kafka.kill()


def connected(bootstrap: str) -> Cluster:
    host, _, port = bootstrap.rpartition(":")
    cluster = Cluster(ClusterSettings(((host, int(port)),), bootstrap_timeout_s=60))
    place_topics(cluster)
    return cluster


def place_topics(cluster: Cluster) -> None:
    made = create_topics(cluster, [NewTopic("t", 2, 1)]).topics[0]
    assert made.error_code == 0, made.error_message
    cluster.retrying(lambda: cluster.leaders("t"))


def write(cluster: Cluster, identity: Identity, place: Place, values: list[bytes], sequence: int = 0) -> int:
    data = build_batch([Record(number, 1_000, None, value) for number, value in enumerate(values)])
    (piece,) = pieces_of(data, 0, read_header(data), 0, 1 << 20)
    offsets: list[int] = []
    grant = Grant(cluster.settings, producer_id=identity.producer_id, epoch=identity.epoch, retry_s=5)
    writer = BatchWriter(cluster, grant, {place: sequence}, lambda _, base, __: offsets.append(base))
    writer.add_batch(place, [sealed(piece, identity, sequence), memoryview(piece.body)], piece.count)
    writer.flush()
    return offsets[0]


def ends(cluster: Cluster, place: Place) -> tuple[int, ...]:
    return tuple(
        list_offsets(cluster, {place: LATEST}, isolation=one)[place]
        for one in (READ_UNCOMMITTED, READ_COMMITTED)
    )


def test_an_empty_marker_fences_a_writer_of_plain_batches(brokers):
    owner = LaneOwner(brokers, "ottla-mirror-A-B-0")
    place, other = Place("t", 0), Place("t", 1)
    old = owner.own()
    assert write(brokers, old, place, [b"a", b"b"]) == 0
    assert ends(brokers, place) == (2, 2), "no transaction is open: the last stable offset follows at once"
    assert write(brokers, old, place, [b"c"], sequence=2) == 2

    new = owner.fence([place, other])
    assert new.producer_id == old.producer_id
    assert new.epoch > old.epoch
    assert ends(brokers, place) == (4, 4), "one marker, one offset, and the last stable offset is behind it"
    assert ends(brokers, other) == (1, 1), "also where the lane had not written yet"
    for fenced in (place, other):
        with pytest.raises(ApiException) as refused:
            write(brokers, old, fenced, [b"zombie"], sequence=3 if fenced == place else 0)
        assert refused.value.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
    assert ends(brokers, place) == (4, 4)
    assert write(brokers, new, place, [b"d"]) == 4
    assert write(brokers, new, place, [b"e"], sequence=1) == 5


def test_a_clean_takeover_costs_no_offset(brokers):
    owner = LaneOwner(brokers, "ottla-mirror-A-B-0")
    place = Place("t", 0)
    assert write(brokers, owner.own(), place, [b"a"]) == 0
    assert write(brokers, owner.own(), place, [b"b"]) == 1
    assert ends(brokers, place) == (2, 2)
