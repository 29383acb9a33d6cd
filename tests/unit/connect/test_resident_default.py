"""Where small cycles run, unless a worker's configuration says it."""

import pytest

from ottla.connect.config.worker import worker_config
from ottla.connect.worker import Worker

CLUSTER = {
    "group.id": "workers",
    **{f"{kind}.storage.topic": kind for kind in ("config", "offset", "status")},
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}
SPARK = {"ottla.spark.master": "spark://host:7077"}


@pytest.mark.parametrize(
    ("keys", "in_tasks"),
    [
        ({**CLUSTER, **SPARK}, True),
        ({**CLUSTER, **SPARK, "ottla.resident.tasks": "0"}, False),
        ({**CLUSTER, "ottla.spark.master": "local[1]"}, False),
        (CLUSTER, False),
        (SPARK, False),
        ({**SPARK, "ottla.resident.tasks": "2"}, True),
    ],
)
def test_workers_of_a_cluster_with_spark_use_resident_tasks(keys, in_tasks):
    worker = Worker(worker_config({"bootstrap.servers": "127.0.0.1:1", **keys}))
    assert (worker.supervisor.residents is not None) == in_tasks
