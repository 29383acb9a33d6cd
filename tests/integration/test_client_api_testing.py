"""`ottla.testing` as another project would use it: a broker in a `with`, the fixtures, and faults."""

import subprocess
import sys

import pytest

from ottla import KafkaAdminClient, KafkaConsumer, KafkaProducer
from ottla.testing import running_broker


def test_a_broker_in_a_with_block():
    with running_broker() as broker:
        data = broker.data
        assert data.exists()
        with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            assert producer.send("topic", b"value").get(60).offset == 0
    assert not broker.running
    assert not data.exists()


@pytest.mark.slow
def test_records_survive_a_kill_and_a_restart(ottla_broker):
    producer = KafkaProducer(bootstrap_servers=ottla_broker.bootstrap)
    producer.send("topic", b"before").get(60)
    address = ottla_broker.bootstrap
    ottla_broker.kill()
    ottla_broker.start()
    assert ottla_broker.bootstrap == address
    producer.send("topic", b"after the kill").get(60)
    ottla_broker.restart()
    producer.send("topic", b"after the restart").get(60)
    producer.close()
    with KafkaConsumer(
        "topic", bootstrap_servers=address, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    ) as consumer:
        values = [next(consumer).value for _ in range(3)]
    assert values == [b"before", b"after the kill", b"after the restart"]


def test_brokers_are_apart(start_ottla_broker):
    first, second = start_ottla_broker("first"), start_ottla_broker("second", {"num.partitions": 3})
    with KafkaAdminClient(bootstrap_servers=first.bootstrap) as admin:
        admin.create_topics(["only-here"])
    with KafkaAdminClient(bootstrap_servers=second.bootstrap) as admin:
        assert admin.list_topics() == []
        assert admin.create_topics(["three"])["topics"][0]["num_partitions"] == 3


def test_a_broker_does_not_load_the_client():
    loaded = (
        "import sys, ottla.cli.start; print('confluent_kafka' in sys.modules, 'ottla.client' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
