"""Exactly once without Spark: read payments, write entries of a ledger, and commit both in one transaction.

    ottla start &                                  # a broker on localhost:9092
    python examples/transaction.py

If the program dies before `commit_transaction`, neither the entries nor the offsets count, and the next run begins
with the same payments again.
"""

from __future__ import annotations

import json
import sys

from ottla import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

PAYMENTS = [("alice", "bob", 10), ("bob", "carol", 25), ("carol", "alice", 5)]


def pay(bootstrap: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for payer, payee, amount in PAYMENTS:
            producer.send("payments", json.dumps([payer, payee, amount]).encode(), partition=0)


def book(bootstrap: str, *, fail: bool) -> None:
    """Book all payments in one transaction; with `fail`, change our mind before the end."""
    source = TopicPartition("payments", 0)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id="ledger",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    consumer.assign([source])
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="ledger")
    producer.init_transactions()
    producer.begin_transaction()
    for _ in PAYMENTS:
        payer, payee, amount = json.loads(next(consumer).value)
        producer.send("ledger", f"{payer} {-amount:+d}".encode(), partition=0)
        producer.send("ledger", f"{payee} {amount:+d}".encode(), partition=0)
    if fail:
        producer.abort_transaction()
    else:
        next_offset = consumer.position(source)
        assert next_offset is not None
        offsets = {source: OffsetAndMetadata(next_offset, "", -1)}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()
    producer.close()
    consumer.close()


def ledger(bootstrap: str) -> list[str]:
    """What a reader of committed records sees."""
    with KafkaConsumer(
        "ledger",
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=3_000,
    ) as consumer:
        return [record.value.decode() for record in consumer]


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
    pay(address)
    book(address, fail=True)
    book(address, fail=False)
    for entry in ledger(address):
        print(entry)
