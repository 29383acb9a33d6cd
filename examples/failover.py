"""Three nodes lose a leader while a producer writes: nothing is lost, and writes go on within a second.

python examples/failover.py                    # starts its own cluster, needs no broker and no container
"""

from __future__ import annotations

import time

from ottla import KafkaConsumer, KafkaProducer
from ottla.testing import running_cluster

RECORDS = 200


def main() -> None:
    with running_cluster(3) as cluster:
        cluster.create_topic("orders", partitions=1)
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", enable_idempotence=True)
        longest_s = 0.0
        for number in range(RECORDS):
            if number == RECORDS // 2:
                leader = cluster.leader_of("orders", 0)
                assert leader is not None
                print("killing the leader")
                cluster.kill(leader)
            started_s = time.monotonic()
            producer.send("orders", b"%d" % number).get(timeout=60)
            longest_s = max(longest_s, time.monotonic() - started_s)
        producer.close()
        with KafkaConsumer(
            "orders", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            found = [int(next(consumer).value) for _ in range(RECORDS)]
    assert found == list(range(RECORDS))
    print(f"{RECORDS} records written and read, in order")
    print(f"the longest write took {longest_s:.2f} s")


if __name__ == "__main__":
    main()
