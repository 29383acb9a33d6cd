"""Orders go into a topic with their customer as key; a consumer group reads them and adds them up.

ottla start &                                  # a broker on localhost:9092
python examples/producer_consumer.py
ottla consumer-groups --describe --group billing
"""

from __future__ import annotations

import json
import sys
from collections import Counter

from ottla import KafkaConsumer, KafkaProducer

ORDERS = [("alice", 1250), ("bob", 800), ("alice", 499), ("carol", 2000), ("bob", 150)]


def write(bootstrap: str) -> None:
    """Records of one customer have one key, so they share a partition and stay in order."""
    with KafkaProducer(
        bootstrap_servers=bootstrap,
        key_serializer=str.encode,
        value_serializer=lambda order: json.dumps(order).encode(),
    ) as producer:
        futures = [producer.send("orders", {"cents": cents}, key=customer) for customer, cents in ORDERS]
        for future in futures:
            metadata = future.get(timeout=30)
            print(f"written to {metadata.topic}-{metadata.partition} at offset {metadata.offset}")


def read(bootstrap: str) -> Counter[str]:
    """The group remembers how far it has read: a second run of this function finds nothing new."""
    totals: Counter[str] = Counter()
    with KafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id="billing",
        auto_offset_reset="earliest",
        consumer_timeout_ms=10_000,
        key_deserializer=bytes.decode,
        value_deserializer=json.loads,
    ) as consumer:
        for count, record in enumerate(consumer, 1):
            totals[record.key] += record.value["cents"]
            if count == len(ORDERS):
                break
        consumer.commit()
    return totals


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
    write(address)
    for customer, cents in sorted(read(address).items()):
        print(f"{customer} owes {cents / 100:.2f}")
