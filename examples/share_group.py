"""A queue: two workers of a share group take jobs from one partition, each job goes to one of them (KIP-932).

    ottla start &                                  # a broker on localhost:9092
    python examples/share_group.py

A worker that fails gives its job back (RELEASE), and the queue delivers it again.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import ShareConsumer

from ottla import ConfigResource, ConfigResourceType, KafkaAdminClient, KafkaProducer, NewTopic

JOBS = 20


def make_queue(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic("jobs", num_partitions=1, replication_factor=1)])
    # A new share group begins at the end of a topic by default.
    admin.alter_configs(
        [ConfigResource(ConfigResourceType.GROUP, "workers", {"share.auto.offset.reset": "earliest"})]
    )
    admin.close()
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(JOBS):
            producer.send("jobs", b"job %d" % number)


def work(bootstrap: str) -> dict[str, int]:
    """Let two workers empty the queue; how often each job was finished."""
    workers = [
        ShareConsumer({"bootstrap.servers": bootstrap, "group.id": "workers"}),
        ShareConsumer({"bootstrap.servers": bootstrap, "group.id": "workers"}),
    ]
    finished: dict[str, int] = {}
    for worker in workers:
        worker.subscribe(["jobs"])
    deadline = time.monotonic() + 60
    while len(finished) < JOBS and time.monotonic() < deadline:
        for worker in workers:
            # The next poll acknowledges what the one before it delivered.
            for job in worker.poll(0.2) or []:
                name = (job.value() or b"").decode()
                finished[name] = finished.get(name, 0) + 1
    for worker in workers:
        worker.close()
    return finished


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
    make_queue(address)
    done = work(address)
    print(f"{len(done)} jobs finished, {sum(done.values())} deliveries")
