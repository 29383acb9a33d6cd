"""Programs against kafka-python's interface, each written once and run on kafka-python and on Ottla's clients.

A script gets the namespace to import from, an address, a topic and a group of its own, and returns what a user
would see.
"""

from __future__ import annotations

import json
import types
from itertools import islice
from typing import Any


def two_sides() -> dict[str, types.SimpleNamespace]:
    import kafka
    import kafka.admin
    import kafka.errors
    import kafka.partitioner

    import ottla
    import ottla.client.broker_errors
    import ottla.client.errors
    import ottla.client.partitioners

    names = (
        "KafkaProducer",
        "KafkaConsumer",
        "KafkaAdminClient",
        "TopicPartition",
        "OffsetAndMetadata",
    )
    return {
        "kafka-python": types.SimpleNamespace(
            **{name: getattr(kafka, name) for name in names},
            Partitioner=kafka.partitioner.Partitioner,
            NewTopic=kafka.admin.NewTopic,
            ConfigResource=kafka.admin.ConfigResource,
            ConfigResourceType=kafka.admin.ConfigResourceType,
            murmur2=kafka.partitioner.murmur2,
        ),
        "ottla": types.SimpleNamespace(
            **{name: getattr(ottla, name) for name in names},
            Partitioner=ottla.Partitioner,
            NewTopic=ottla.NewTopic,
            ConfigResource=ottla.ConfigResource,
            ConfigResourceType=ottla.ConfigResourceType,
            murmur2=ottla.client.partitioners.murmur2,
        ),
    }


def outcome(call: Any) -> Any:
    """What a call gives, or the name of what it raises."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - which one it is is the question
        return type(error).__name__


def refused(call: Any) -> bool:
    """Whether a call fails with an error of Kafka's family, whichever it is."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - so is this
        return any(cls.__name__ == "KafkaError" for cls in type(error).__mro__)
    return False


def read_all(consumer: Any, count: int, timeout_ms: int = 60_000) -> list[Any]:
    records: list[Any] = []
    while len(records) < count:
        batch = consumer.poll(timeout_ms=timeout_ms)
        assert batch, f"{len(records)} of {count} records came"
        for one in batch.values():
            records += one
    return sorted(records, key=lambda record: (record.partition, record.offset))


def fields(record: Any) -> tuple[Any, ...]:
    return (
        record.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
        record.leader_epoch,
        record.checksum,
        record.serialized_key_size,
        record.serialized_value_size,
        record.serialized_header_size,
    )


def metadata_and_records(api: Any, bootstrap: str, topic: str, group: str) -> Any:
    """What `send` reports and what is read back, field by field."""
    with api.KafkaProducer(bootstrap_servers=bootstrap) as producer:
        sent = [
            producer.send(topic, b"value", timestamp_ms=1_000).get(60),
            producer.send(topic, b"value", key=b"key", timestamp_ms=1_001, partition=0).get(60),
            producer.send(topic, None, key=b"key", timestamp_ms=1_002, partition=0).get(60),
            producer.send(topic, b"", key=b"", headers=[("h", b"1"), ("h", b"")], timestamp_ms=1_003).get(60),
            producer.send(topic, bytearray(b"array"), timestamp_ms=1_004).get(60),
        ]
    consumer = api.KafkaConsumer(topic, bootstrap_servers=[bootstrap], auto_offset_reset="earliest")
    records = read_all(consumer, len(sent))
    consumer.close()
    return [(one.partition, *tuple(one)[3:]) for one in sent], [fields(one) for one in records]


def keys_choose_partitions(api: Any, bootstrap: str, topic: str, group: str) -> Any:
    keys = [b"", b"a", b"ab", b"abc", b"abcd", b"\xff\xfe", *(f"key-{n}".encode() for n in range(60))]
    with api.KafkaProducer(bootstrap_servers=bootstrap) as producer:
        futures = {key: producer.send(topic, b"v", key=key) for key in keys}
        producer.flush()
        return {key: future.get(60).partition for key, future in futures.items()}


def own_partitioner(api: Any, bootstrap: str, topic: str, group: str) -> Any:
    class ByLength(api.Partitioner):  # type: ignore[misc, name-defined]
        def partition(self, topic, key, serialized_key, value, serialized_value, cluster):
            return len(serialized_value) % len(cluster.partitions_for_topic(topic))

    with api.KafkaProducer(bootstrap_servers=bootstrap, partitioner=ByLength()) as producer:
        return [producer.send(topic, b"x" * n).get(60).partition for n in range(1, 9)]


def serializers_and_iteration(api: Any, bootstrap: str, topic: str, group: str) -> Any:
    with api.KafkaProducer(
        bootstrap_servers=bootstrap,
        key_serializer=str.encode,
        value_serializer=lambda value: json.dumps(value).encode(),
        compression_type="gzip",
        linger_ms=10,
    ) as producer:
        for n in range(20):
            producer.send(topic, {"n": n}, key=f"k{n % 3}")
    consumer = api.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
        key_deserializer=bytes.decode,
        value_deserializer=json.loads,
    )
    seen = sorted(
        (record.partition, record.offset, record.key, record.value["n"]) for record in islice(consumer, 20)
    )
    consumer.close()
    # And one that finds nothing ends by itself.
    consumer = api.KafkaConsumer(topic, bootstrap_servers=bootstrap, consumer_timeout_ms=500)
    seen += list(consumer)
    consumer.close()
    return seen


def callbacks(api: Any, bootstrap: str, topic: str, group: str) -> Any:
    heard: list[Any] = []
    with api.KafkaProducer(bootstrap_servers=bootstrap, max_request_size=100_000) as producer:
        future = producer.send(topic, b"v", partition=1)
        future.add_callback(lambda extra, metadata: heard.append((extra, metadata.offset)), "extra")
        future.add_errback(heard.append)
        producer.flush()
        future.add_callback(lambda metadata: heard.append(metadata.partition))
        return heard, future.is_done, future.succeeded(), future.failed(), future.value.offset


def refusals_of_send(api: Any, bootstrap: str, topic: str, group: str) -> Any:
    producer = api.KafkaProducer(bootstrap_servers=bootstrap, max_request_size=100_000, max_block_ms=60_000)
    results = [
        outcome(lambda: producer.send(topic)),
        outcome(lambda: producer.send(topic, b"v", partition=99)),
        outcome(lambda: producer.send(topic, b"v", partition=-1)),
        outcome(lambda: producer.send(topic, "text")),
        outcome(lambda: producer.send(topic, b"v", key=5)),
        outcome(lambda: producer.send(topic, b"v", headers=[("h", "text")])),
        outcome(lambda: producer.send(topic, b"v", headers={"h": b"1"})),
        outcome(lambda: producer.send(topic, b"x" * 200_000)),
        sorted(producer.partitions_for(topic)),
        outcome(producer.begin_transaction),
        outcome(producer.commit_transaction),
    ]
    producer.close()
    return [*results, outcome(lambda: producer.send(topic, b"v"))]


def conflicting_settings(api: Any, bootstrap: str, topic: str, group: str) -> Any:
    def make(**settings: Any) -> Any:
        def build() -> bool:
            producer = api.KafkaProducer(bootstrap_servers=bootstrap, **settings)
            producer.close()
            return bool(producer.config["enable_idempotence"])

        return outcome(build)

    return [
        make(),
        make(acks=1),
        make(acks=0),
        make(acks="all", retries=3),
        make(enable_idempotence=True, acks=1),
        make(enable_idempotence=True, retries=0),
        make(enable_idempotence=True, max_in_flight_requests_per_connection=6),
        make(max_in_flight_requests_per_connection=6),
        make(transactional_id="t", enable_idempotence=False),
        make(transactional_id="t", acks=1),
        make(enable_idempotence=False, acks=1, retries=0),
    ]


def positions_and_seeks(api: Any, bootstrap: str, topic: str, group: str) -> Any:
    parts = [api.TopicPartition(topic, n) for n in range(3)]
    first = parts[0]
    with api.KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for n in range(30):
            producer.send(topic, b"%d" % n, partition=n % 3, timestamp_ms=1_000 + n)
    consumer = api.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    results: list[Any] = [consumer.subscription(), consumer.assignment()]
    consumer.assign(parts)
    results += [consumer.assignment() == set(parts), consumer.subscription()]
    results += [consumer.position(tp) for tp in parts]
    results += [list(map(len, [read_all(consumer, 30)])), [consumer.position(tp) for tp in parts]]
    results.append(consumer.highwater(first))
    consumer.assign([first])
    consumer.seek(first, 4)
    results.append(consumer.position(first))
    results.append([r.offset for r in read_all(consumer, 6)])
    consumer.seek(first, 7)
    results.append([r.offset for r in consumer.poll(60_000, max_records=2)[first]])
    results.append(consumer.position(first))
    consumer.seek_to_end(first)
    results.append(consumer.position(first))
    consumer.seek_to_beginning()
    results += [consumer.position(first), [r.offset for r in read_all(consumer, 10)]]
    results.append(sorted(consumer.beginning_offsets(parts).values()))
    results.append(sorted(consumer.end_offsets(parts).values()))
    found = consumer.offsets_for_times({parts[0]: 1_004, parts[1]: 0, parts[2]: 99_999})
    results.append([found[tp] and tuple(found[tp])[:2] for tp in parts])
    results += [consumer.partitions_for_topic(topic), topic in consumer.topics()]
    results += [
        outcome(lambda: consumer.seek(parts[1], 0)),
        outcome(lambda: consumer.seek(first, -1)),
        outcome(lambda: consumer.position(parts[1])),
        outcome(lambda: consumer.seek_to_end(parts[1])),
        outcome(lambda: consumer.position((topic, 0))),
        outcome(lambda: consumer.subscribe([topic])),
        outcome(lambda: consumer.poll(-1)),
        outcome(lambda: consumer.poll(max_records=0)),
        outcome(lambda: consumer.offsets_for_times({first: -1})),
        outcome(consumer.commit),
        outcome(lambda: consumer.committed(first)),
    ]
    consumer.close()
    return [*results, outcome(consumer.poll), outcome(lambda: next(consumer))]


def pause_and_resume(api: Any, bootstrap: str, topic: str, group: str) -> Any:
    zero, one = (api.TopicPartition(topic, n) for n in range(2))
    with api.KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for n in range(20):
            producer.send(topic, b"%d" % n, partition=n % 2)
    consumer = api.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([zero, one])
    consumer.pause(one)
    results = [consumer.paused() == {one}, [r.partition for r in read_all(consumer, 10)]]
    results.append(consumer.poll(300))
    consumer.resume(one)
    results += [consumer.paused(), [r.offset for r in read_all(consumer, 10)]]
    consumer.seek_to_beginning()
    results.append(next(consumer).offset)
    consumer.pause(zero, one)
    results.append(consumer.poll(300))
    consumer.resume(zero, one)
    results.append(len(read_all(consumer, 19)))
    consumer.close()
    return results


def group_commits(api: Any, bootstrap: str, topic: str, group: str) -> Any:
    tp = api.TopicPartition(topic, 0)
    with api.KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for n in range(10):
            producer.send(topic, b"%d" % n, partition=0)

    def member(**settings: Any) -> Any:
        return api.KafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", **settings
        )

    heard: list[Any] = []
    consumer = member(enable_auto_commit=False)
    results: list[Any] = [outcome(lambda: consumer.committed(tp))]
    taken = [next(consumer).offset for _ in range(4)]
    consumer.commit()
    results += [taken, consumer.committed(tp), consumer.position(tp)]
    consumer.commit({tp: api.OffsetAndMetadata(2, "a note", -1)})
    noted = consumer.committed(tp, metadata=True)
    results += [noted.offset, noted.metadata]
    future = consumer.commit_async(
        {tp: api.OffsetAndMetadata(6, "", -1)},
        callback=lambda offsets, response: heard.append(offsets[tp].offset),
    )
    while not heard:
        consumer.poll(50, max_records=1)
    results += [future.succeeded(), heard, consumer.committed(tp)]
    consumer.close()
    consumer = member()
    results.append([next(consumer).offset for _ in range(2)])
    consumer.close()
    consumer = member(enable_auto_commit=False)
    results.append([next(consumer).offset for _ in range(2)])
    consumer.close()
    consumer = member(enable_auto_commit=False)
    results.append(consumer.committed(tp))
    consumer.close()
    return results


def patterns(api: Any, bootstrap: str, topic: str, group: str) -> Any:
    with api.KafkaProducer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"in").get(60)
    consumer = api.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.subscribe(pattern=f"^{topic[:-2]}.*")
    records = read_all(consumer, 1)
    results = [records[0].value, topic in consumer.subscription()]
    results.append(outcome(lambda: consumer.assign([api.TopicPartition(topic, 0)])))
    consumer.close()
    return results


def transactions(api: Any, bootstrap: str, topic: str, group: str) -> Any:
    tp = api.TopicPartition(topic, 0)
    producer = api.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=group)
    results: list[Any] = [refused(producer.begin_transaction)]
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"kept", partition=0)
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send(topic, b"dropped", partition=0).get(60)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send(topic, b"last", partition=0)
    producer.send_offsets_to_transaction({tp: api.OffsetAndMetadata(5, "", -1)}, group)
    producer.commit_transaction()
    results += [refused(producer.commit_transaction)]
    producer.close()
    for level in ("read_committed", "read_uncommitted"):
        consumer = api.KafkaConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            isolation_level=level,
            group_id=group + level,
        )
        consumer.assign([tp])
        count = 2 if level == "read_committed" else 3
        results.append([(r.offset, r.value) for r in read_all(consumer, count)])
        results.append(consumer.end_offsets([tp])[tp])
        consumer.close()
    reader = api.KafkaConsumer(bootstrap_servers=bootstrap, group_id=group)
    results.append(reader.committed(tp))
    reader.close()
    return results


def _anonymous(reported: Any, topic: str, group: str) -> Any:
    """The same answer for topics of other names: only names and ids of the two runs may differ."""
    if isinstance(reported, dict):
        return {
            _anonymous(key, topic, group): _anonymous(value, topic, group)
            for key, value in reported.items()
            if key not in ("topic_id", "member_id", "client_id")
        }
    if isinstance(reported, list | tuple) and not hasattr(reported, "_fields"):
        return [_anonymous(one, topic, group) for one in reported]
    return (
        str(reported).replace(topic, "TOPIC").replace(group, "GROUP")
        if not isinstance(reported, int)
        else reported
    )


def admin_of_topics(api: Any, bootstrap: str, topic: str, group: str) -> Any:
    made = f"{topic}-made"
    admin = api.KafkaAdminClient(bootstrap_servers=bootstrap)
    resource = api.ConfigResource(api.ConfigResourceType.TOPIC, made)
    wanted = api.NewTopic(
        made, num_partitions=2, replication_factor=1, topic_configs={"retention.ms": "1000"}
    )
    results: list[Any] = [
        admin.create_topics([wanted], validate_only=True)["topics"][0]["error_code"],
        made in admin.list_topics(),
        admin.create_topics([wanted])["topics"][0]["num_partitions"],
        outcome(lambda: admin.create_topics([wanted])),
        outcome(lambda: admin.create_topics([api.NewTopic("not/a/name", 1, 1)])),
        outcome(lambda: admin.create_topics([api.NewTopic(f"{made}-2", 1, 9)])),
        made in admin.list_topics(),
        [
            {**one, "authorized_operations": sorted(one["authorized_operations"])}
            for one in admin.describe_topics([made])
        ],
        admin.describe_configs([resource]),
        admin.alter_configs(
            [
                api.ConfigResource(
                    api.ConfigResourceType.TOPIC, made, {"retention.ms": "2000", "segment.ms": "99"}
                )
            ]
        ),
        admin.describe_configs([resource]),
        admin.reset_configs([api.ConfigResource(api.ConfigResourceType.TOPIC, made, ["segment.ms"])]),
        admin.describe_configs([resource], config_filter="modified"),
        sorted(admin.describe_configs([resource], config_filter="all")["topic"][made]),
    ]
    admin.create_partitions({made: 5})
    results.append(len(admin.describe_topics([made])[0]["partitions"]))
    results.append(outcome(lambda: admin.create_partitions({made: 3})))
    with api.KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for n in range(10):
            producer.send(made, b"%d" % n, partition=0)
    deleted = admin.delete_records({api.TopicPartition(made, 0): 4})
    results.append([one["low_watermark"] for one in deleted.values()])
    results.append([one["error_code"] for one in admin.delete_topics([made])["topics"]])
    results.append(outcome(lambda: admin.delete_topics([made])))
    cluster = admin.describe_cluster()
    results.append((sorted(cluster), [sorted(one) for one in cluster["brokers"]]))
    results.append(sorted(cluster["authorized_operations"]))
    admin.close()
    return _anonymous(results, topic, group)


def admin_of_groups(api: Any, bootstrap: str, topic: str, group: str) -> Any:
    tp = api.TopicPartition(topic, 0)
    admin = api.KafkaAdminClient(bootstrap_servers=bootstrap)
    with api.KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for n in range(10):
            producer.send(topic, b"%d" % n, partition=0)
    consumer = api.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    )
    next(consumer)
    consumer.commit()
    described = admin.describe_groups([group])[group]
    results: list[Any] = [
        group in [one["group_id"] for one in admin.list_groups()],
        (
            described["group_state"],
            described["protocol_type"],
            described["protocol_data"],
            described["error"],
        ),
        [member["member_assignment"]["assigned_partitions"] for member in described["members"]],
        [member["member_metadata"]["topics"] for member in described["members"]],
        admin.delete_groups([group]),
    ]
    consumer.close()
    # Who leaves need not wait for the group to hear of it.
    while (state := admin.describe_groups([group])[group]["group_state"]) == "Stable":
        pass
    results.append(state)
    results.append(admin.list_group_offsets({group: None})[group][tp].offset)
    altered = admin.alter_group_offsets(group, {tp: api.OffsetAndMetadata(7, "moved", -1)})
    results.append([one.__name__ for one in altered.values()])
    moved = admin.list_group_offsets({group: [tp]})[group][tp]
    results += [moved.offset, moved.metadata]
    results.append([one.__name__ for one in admin.delete_group_offsets(group, [tp]).values()])
    results += [admin.delete_groups([group]), admin.delete_groups([group])]
    admin.close()
    return _anonymous(results, topic, group)


SCRIPTS = [
    admin_of_topics,
    admin_of_groups,
    metadata_and_records,
    keys_choose_partitions,
    own_partitioner,
    serializers_and_iteration,
    callbacks,
    refusals_of_send,
    conflicting_settings,
    positions_and_seeks,
    pause_and_resume,
    group_commits,
    patterns,
    transactions,
]
