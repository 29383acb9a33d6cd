"""Any history of records: the image by way of the log is the image by way of a snapshot, at any cut between the two."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.records import decode_record, encode_record
from ottla.metadata.snapshot import image_to_records, written_at
from ottla.wire import messages as m

IDS = [bytes([i]) * 16 for i in range(1, 5)]
NAMES = ["a", "b", "c", "d"]
DIRS = st.lists(st.sampled_from(IDS), min_size=2, max_size=2)
BROKERS = st.lists(st.integers(1, 3), max_size=3, unique=True)
OPTIONAL_BROKERS = st.none() | BROKERS


def draw_record(data: st.DataObject, image: MetadataImage, offset: int) -> Any:
    """A record that makes sense on top of this image."""
    choices = [
        "topic",
        "feature",
        "config",
        "register",
        "register_controller",
        "quota",
        "acl",
        "scram",
        "token",
        "ids",
    ]
    if image.topics.by_id:
        choices += ["partition", "change", "change", "remove_topic", "clear_elr"]
    if image.brokers:
        choices += ["fence", "unfence", "change_broker", "unregister"]
    if image.acls:
        choices.append("remove_acl")
    return RECORDS[data.draw(st.sampled_from(choices))](data.draw, image, offset)


def topic(draw: Any, image: MetadataImage, offset: int) -> Any:
    free = [n for n in NAMES if n not in image.topics.by_name]
    unused = [i for i in IDS if i not in image.topics.by_id]
    if not free:
        return m.NoOpRecord()
    return m.TopicRecord(name=draw(st.sampled_from(free)), topic_id=draw(st.sampled_from(unused)))


def partition(draw: Any, image: MetadataImage, offset: int) -> Any:
    return m.PartitionRecord(
        topic_id=draw(st.sampled_from(list(image.topics.by_id))),
        partition_id=draw(st.integers(0, 2)),
        replicas=[1, 2],
        isr=draw(BROKERS),
        removing_replicas=draw(BROKERS),
        adding_replicas=draw(BROKERS),
        leader=draw(st.integers(-1, 3)),
        leader_recovery_state=draw(st.integers(0, 1)),
        leader_epoch=draw(st.integers(0, 9)),
        partition_epoch=draw(st.integers(0, 9)),
        directories=draw(DIRS),
        eligible_leader_replicas=draw(OPTIONAL_BROKERS),
        last_known_elr=draw(OPTIONAL_BROKERS),
    )


def change(draw: Any, image: MetadataImage, offset: int) -> Any:
    known = [(t.id, i) for t in image.topics.by_id.values() for i in t.partitions]
    if not known:
        return m.NoOpRecord()
    topic_id, index = draw(st.sampled_from(known))
    return m.PartitionChangeRecord(
        topic_id=topic_id,
        partition_id=index,
        isr=draw(OPTIONAL_BROKERS),
        leader=draw(st.integers(-2, 3)),
        removing_replicas=draw(OPTIONAL_BROKERS),
        adding_replicas=draw(OPTIONAL_BROKERS),
        leader_recovery_state=draw(st.integers(-1, 1)),
        directories=draw(st.none() | DIRS),
        eligible_leader_replicas=draw(OPTIONAL_BROKERS),
        last_known_elr=draw(OPTIONAL_BROKERS),
    )


def register(draw: Any, image: MetadataImage, offset: int) -> Any:
    cls = m.RegisterBrokerRecord
    return cls(
        broker_id=draw(st.integers(1, 3)),
        broker_epoch=offset,
        incarnation_id=draw(st.sampled_from(IDS)),
        end_points=[
            cls.BrokerEndpoint(name=n, host="h", port=1, security_protocol=0) for n in draw(BROKER_NAMES)
        ],
        features=[cls.BrokerFeature(name=n, max_supported_version=2) for n in draw(BROKER_NAMES)],
        rack=draw(st.none() | st.sampled_from(NAMES)),
        fenced=draw(st.booleans()),
        in_controlled_shutdown=draw(st.booleans()),
        log_dirs=draw(st.lists(st.sampled_from(IDS), unique=True)),
        cordoned_log_dirs=draw(st.none() | st.lists(st.sampled_from(IDS), unique=True)),
    )


BROKER_NAMES = st.lists(st.sampled_from(NAMES), unique=True)


def register_controller(draw: Any, image: MetadataImage, offset: int) -> Any:
    cls = m.RegisterControllerRecord
    return cls(
        controller_id=draw(st.integers(1, 3)),
        incarnation_id=draw(st.sampled_from(IDS)),
        end_points=[cls.ControllerEndpoint(name=n, host="h", port=1) for n in draw(BROKER_NAMES)],
        features=[cls.ControllerFeature(name=n, max_supported_version=2) for n in draw(BROKER_NAMES)],
    )


def change_broker(draw: Any, image: MetadataImage, offset: int) -> Any:
    broker = draw(st.sampled_from(list(image.brokers.values())))
    return m.BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=draw(st.integers(-1, 1)),
        in_controlled_shutdown=draw(st.integers(0, 1)),
        log_dirs=draw(st.lists(st.sampled_from(IDS), unique=True)),
        cordoned_log_dirs=draw(st.none() | st.lists(st.sampled_from(IDS), unique=True)),
    )


def fencing(cls: Any) -> Any:
    def record(draw: Any, image: MetadataImage, offset: int) -> Any:
        broker = draw(st.sampled_from(list(image.brokers.values())))
        return cls(id=broker.id, epoch=broker.epoch)

    return record


def unregister(draw: Any, image: MetadataImage, offset: int) -> Any:
    broker = draw(st.sampled_from(list(image.brokers.values())))
    return m.UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)


def config(draw: Any, image: MetadataImage, offset: int) -> Any:
    return m.ConfigRecord(
        resource_type=draw(st.sampled_from([2, 4, 16, 32])),
        resource_name=draw(st.sampled_from(["", *NAMES])),
        name=draw(st.sampled_from(["k1", "k2"])),
        value=draw(st.none() | st.text(max_size=3)),
    )


def quota(draw: Any, image: MetadataImage, offset: int) -> Any:
    kinds = draw(st.lists(st.sampled_from(["user", "client-id", "ip"]), min_size=1, unique=True))
    cls = m.ClientQuotaRecord
    names = st.none() | st.sampled_from(NAMES)
    return cls(
        entity=[cls.EntityData(entity_type=kind, entity_name=draw(names)) for kind in kinds],
        key=draw(st.sampled_from(["producer_byte_rate", "request_percentage"])),
        value=draw(st.floats(0, 1e9)),
        remove=draw(st.booleans()),
    )


def scram(draw: Any, image: MetadataImage, offset: int) -> Any:
    key = {"name": draw(st.sampled_from(NAMES)), "mechanism": draw(st.integers(1, 2))}
    if draw(st.booleans()):
        return m.RemoveUserScramCredentialRecord(**key)
    salt = draw(st.binary(max_size=4))
    return m.UserScramCredentialRecord(**key, salt=salt, stored_key=b"s", server_key=b"v", iterations=4096)


def token(draw: Any, image: MetadataImage, offset: int) -> Any:
    token_id = draw(st.sampled_from(NAMES))
    if draw(st.booleans()):
        return m.RemoveDelegationTokenRecord(token_id=token_id)
    return m.DelegationTokenRecord(owner="o", requester="r", renewers=draw(BROKER_NAMES), token_id=token_id)


RECORDS: dict[str, Any] = {
    "topic": topic,
    "partition": partition,
    "change": change,
    "remove_topic": lambda draw, image, _: m.RemoveTopicRecord(
        topic_id=draw(st.sampled_from(list(image.topics.by_id)))
    ),
    "clear_elr": lambda draw, image, _: m.ClearElrRecord(
        topic_name=draw(st.sampled_from(["", *image.topics.by_name]))
    ),
    "feature": lambda draw, image, _: m.FeatureLevelRecord(
        name=draw(st.sampled_from(["metadata.version", "group.version", "x"])),
        feature_level=draw(st.sampled_from([0, 30])),
    ),
    "config": config,
    "register": register,
    "register_controller": register_controller,
    "change_broker": change_broker,
    "fence": fencing(m.FenceBrokerRecord),
    "unfence": fencing(m.UnfenceBrokerRecord),
    "unregister": unregister,
    "quota": quota,
    "acl": lambda draw, image, _: m.AccessControlEntryRecord(
        id=draw(st.sampled_from(IDS)),
        resource_type=2,
        resource_name=draw(st.sampled_from(NAMES)),
        principal="User:a",
    ),
    "remove_acl": lambda draw, image, _: m.RemoveAccessControlEntryRecord(
        id=draw(st.sampled_from(list(image.acls)))
    ),
    "scram": scram,
    "token": token,
    "ids": lambda draw, image, offset: m.ProducerIdsRecord(
        broker_id=1, broker_epoch=1, next_producer_id=offset
    ),
}


def applied(image: MetadataImage, records: list[Any]) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay_all(records)
    return delta.apply(image.offset + len(records), 1)


def by_snapshot(image: MetadataImage) -> MetadataImage:
    """Through bytes, as a snapshot file holds them."""
    values = [encode_record(r, written_at(image)) for r in image_to_records(image)]
    return applied(EMPTY_IMAGE, [decode_record(v) for v in values])


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.integers(1, 40))
def test_the_image_by_log_is_the_image_by_snapshot(data: st.DataObject, length: int) -> None:
    history: list[Any] = []
    image = EMPTY_IMAGE
    images = [image]
    for offset in range(length):
        record = draw_record(data, image, offset)
        history.append(record)
        image = applied(image, [decode_record(encode_record(record))])
        images.append(image)
    assert applied(EMPTY_IMAGE, history) == image, "one delta for all, or one for each"
    assert by_snapshot(image).same_metadata(image)
    cut = data.draw(st.integers(0, length))
    assert applied(by_snapshot(images[cut]), history[cut:]).same_metadata(image)
    assert applied(EMPTY_IMAGE, history[:cut]).same_metadata(images[cut]), (
        "no image was changed by what came after it"
    )
