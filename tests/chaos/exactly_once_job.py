"""A consume-transform-produce job in a process of its own, to be killed: `python exactly_once_job.py BOOTSTRAP COUNT`.

Every transaction takes the next records of its group, writes them to the same partition of the output, and commits the
offsets with them. It says how far it has come ("begun", "sent", "offsets", "committed"), so that it can be killed
anywhere, and ends when it has reached the end of the input.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

INPUT, OUTPUT, GROUP = "orders", "invoices", "job"
PARTITIONS = 4
QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    # When all brokers it knows are gone, librdkafka starts again from the bootstrap servers by default, and then waits
    # for ever for the group coordinator that it knew before.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


def transform(value: bytes) -> bytes:
    return b"paid " + value


def main(bootstrap: str, per_transaction: int) -> None:
    producer = Producer(
        {**QUICK, "bootstrap.servers": bootstrap, "transactional.id": "job-1", "linger.ms": 1}
    )
    producer.init_transactions(60)
    consumer = Consumer(
        {
            **QUICK,
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            # A successor takes the place of a killed one at once, without waiting for its session to end.
            "group.instance.id": "worker",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.subscribe([INPUT])
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        records = []
        for message in consumer.consume(per_transaction, 0.5):
            if message.error() is None:
                records.append(message)
                ended.discard(message.partition())
            elif message.error().name() == "_PARTITION_EOF":
                ended.add(message.partition())
        if records:
            run_transaction(producer, consumer, records)
    consumer.close()


def run_transaction(producer: Producer, consumer: Consumer, records: list[Message]) -> None:
    producer.begin_transaction()
    say("begun")
    for record in records:
        producer.produce(OUTPUT, transform(record.value()), partition=record.partition())
    producer.poll(0)
    say("sent")
    reached: dict[int, int] = {}
    for record in records:
        reached[record.partition()] = record.offset() + 1
    offsets = [TopicPartition(INPUT, partition, offset) for partition, offset in reached.items()]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
    say("offsets")
    producer.commit_transaction(60)
    say("committed")


def say(phase: str) -> None:
    print(phase, flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except KafkaException as error:
        # The runner starts it again; the next instance aborts what this one left open.
        print("failed", error, file=sys.stderr, flush=True)
        sys.exit(3)
