"""What a reader of committed records sees of a topic."""

from __future__ import annotations

from collections import Counter

from ottla.admin.cluster import Cluster
from ottla.client.cluster_settings import writer_settings
from ottla.pipeline.decoding import decode
from ottla.pipeline.fetching import LATEST, OffsetRange, fetch_ranges, list_offsets
from ottla.pipeline.writer import Place
from ottla.testing.process import BrokerProcess


def values_of(broker: BrokerProcess, topic: str) -> Counter[str]:
    """How often each value can be read now."""
    brokers = Cluster(writer_settings(broker.bootstrap))
    found: Counter[str] = Counter()
    try:
        places = [Place(topic, number) for number in brokers.leaders(topic)]
        ends = list_offsets(brokers, dict.fromkeys(places, LATEST))
        for part in fetch_ranges(
            brokers, [OffsetRange(topic, p.partition, 0, end) for p, end in ends.items()]
        ):
            for batch in decode(part, ("value",)):
                found.update(value.decode() for value in batch.column(0).to_pylist())
    finally:
        brokers.close()
    return found
